# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress text on the controller: one line for each phase of a start-up, prefixed by the inventory host.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.gpufleet.sglang.plugins.module_utils import _verdict

# Between two lines of the same phase.
QUIET_SECONDS = 10.0

# A phase that began so long ago has just begun: a slice does not return at once.
JUST_SECONDS = 5.0

# Above so many hosts only the ends are printed: ready, failed, stalled.
MANY_HOSTS = 20

# What is worth saying of the start-up record in each phase: (field, text). The first that is known is said.
_DETAILS = {
    "weights": (("free_before_load_gib", "%.1f GiB free before load"),),
    "pool": (("free_after_load_gib", "%.1f GiB free after load"), ("weights_gib", "weights %.1f GiB")),
    "graphs": (("pool_end_free_gib", "%.1f GiB free after the pool"),),
    "warmup": (("pool_tokens", "pool %s tokens"), ("headroom_gib", "headroom %.1f GiB")),
}
_EVIDENCE_LENGTH = 160


def line(host: str, phase: str, seconds: float | None, detail: str = "") -> str:
    """One line: ``gpu-a | weights | 12 s | 20.7 GiB free before load``."""
    parts = [host, phase, "-" if seconds is None else f"{seconds:.0f} s", detail]
    return " | ".join(part for part in parts if part)


def detail(startup: dict, phase: str) -> str:
    """What the start-up record tells about a phase, in a few words."""
    words = []
    for name, text in _DETAILS.get(phase, ()):
        value = startup.get(name)
        if value is not None:
            words.append(text % (f"{value:,}" if "%s" in text else value))
    if phase == "weights" and startup.get("progress"):
        words.append("{done} of {total} parts".format(**startup["progress"]))
    if startup.get("waiting_for"):
        words.append(str(startup["waiting_for"]))
    return ", ".join(words)


def end_detail(result: dict) -> str:
    """What the last line says: pool and headroom, or the cause."""
    failure = result.get("failure")
    if failure:
        evidence = " ".join(str(failure.get("evidence") or "").split())
        if len(evidence) > _EVIDENCE_LENGTH:
            evidence = evidence[:_EVIDENCE_LENGTH] + "..."
        return "{}: {}".format(failure.get("kind"), evidence)
    words = _held(result)
    return (
        words
        if result.get("verdict") == "holds"
        else "{}: {}".format(result.get("verdict"), result.get("reason") or words)
    )


def _held(result):
    """Pool and headroom by all witnesses, the tightest board named."""
    pool = (result.get("startup") or {}).get("pool_tokens")
    words = [] if pool is None else [f"pool {pool:,} tokens{_verdict.of_ranks(result.get('pools'))}"]
    headroom = _verdict.headroom_of(result)
    if headroom["gib"] is not None:
        words.append(f"headroom {headroom['gib']:.1f} GiB" + (f" on {headroom['where']}" if headroom["where"] else ""))
    return ", ".join(words)


def end_word(result: dict) -> str:
    """How the wait ended: ``ready``, ``failed``, or ``stalled`` for a death that only silence named."""
    if result.get("verdict") in ("holds", "short", "unsafe"):
        return "ready"
    figures = (result.get("failure") or {}).get("figures") or {}
    return "stalled" if figures.get("silence_seconds") is not None else "failed"


def soak_end(result: dict) -> str:
    """What the last line of a load says: what it survived, or why it did not."""
    if result["verdict"] != "proven":
        return " ".join(str(result.get("reason") or "").split())[: 2 * _EVIDENCE_LENGTH]
    words = "{answered} requests, the longest prompt {longest_prompt_tokens:,} tokens".format(**result)
    least, at = result.get("least_free_gib") or {}, result.get("at") or {}
    board = at.get("board")
    if board not in least:
        return words
    return words + f", least free {least[board]:.1f} GiB" + ("" if board == "cpu" else f" on board {board}")


def up_seconds(result: dict) -> float | None:
    """How long a server was ready already when the wait began; None when it became ready in the wait, or never."""
    ready_at = (result.get("startup") or {}).get("ready_at")
    since = (result.get("slice") or {}).get("waiting_since")
    began = [row["at"] for row in result.get("timeline") or [] if row.get("at") is not None]
    if ready_at is None or since is None or not began or ready_at >= since or end_word(result) != "ready":
        return None
    return min(began) + (result.get("elapsed_seconds") or 0.0) - ready_at


def _joined(words):
    """Words without what another one says already."""
    kept = []
    for word in words:
        kept += [one for one in (word or "").split(", ") if one and one not in kept]
    return ", ".join(kept)


class Progress:
    """Prints what is new about one host.

    :arg show: prints one line. :arg host: inventory name. :arg hosts: how many hosts are in the play.
    :arg clock: seconds, only going forward.
    """

    def __init__(self, show: Callable[[str], None], host: str, hosts: int, clock: Callable[[], float]):
        self._show = show
        self._host = host
        self._brief = hosts > MANY_HOSTS
        self._clock = clock
        self._printed_at = None
        self._printed_phases = set()
        self._said_limit = False

    def begin(self, unit: str) -> None:
        """The wait begins."""
        self._say("waiting", 0, unit, brief=False)

    def step(self, result: dict) -> None:
        """A slice came back: new phases are printed at once, the same phase at most once in ten seconds."""
        phase = result.get("phase") or "process"
        startup = result.get("startup") or {}
        fresh = phase not in self._printed_phases
        self._limit(result.get("deadline") or {})
        if fresh:
            self._passed(result, startup, phase)
        if fresh or self._clock() - self._printed_at >= QUIET_SECONDS - 1.0:
            self._printed_phases.add(phase)
            words = [detail(startup, phase), (result.get("progress") or {}).get("words")]
            elapsed = result.get("elapsed_seconds")
            self._say(phase, _began_seconds(result, phase, elapsed) if fresh else elapsed, _joined(words), brief=False)

    def end(self, result: dict) -> None:
        """The wait is over."""
        self._passed(result, result.get("startup") or {}, None)
        up = up_seconds(result)
        words = [end_detail(result), "" if up is None else f"up for {up:.0f} s"]
        seconds = result.get("elapsed_seconds") if up is None else result.get("waited_seconds")
        self._say(end_word(result), seconds, ", ".join(word for word in words if word), brief=True)

    def _limit(self, deadline):
        """How long the wait may last, once, when it is computed: what the user stated is no news."""
        if deadline.get("auto") and not self._said_limit:
            self._said_limit = True
            self._say("waiting", 0, "at most {seconds:.0f} s: {why}".format(**deadline), brief=False)

    def lost(self, reason: str) -> None:
        """The connection was lost; the wait goes on."""
        self._say(
            "connection",
            None,
            "lost, trying again: {}".format(" ".join(reason.split())[:_EVIDENCE_LENGTH]),
            brief=False,
        )

    def _passed(self, result, startup, current):
        """The phases that went by between two slices; those that were over before the wait began are no news."""
        since = (result.get("slice") or {}).get("waiting_since") or 0.0
        rows = [row for row in result.get("timeline") or [] if row.get("at") is not None]
        for row in rows:
            name, over_at = row.get("phase"), row["at"] + (row.get("seconds") or 0.0)
            if name in ("ready", "completion", current) or name in self._printed_phases or over_at < since:
                continue
            self._printed_phases.add(name)
            self._say(name, row["at"] - rows[0]["at"], detail(_without_notes(startup), name), brief=False)

    def _say(self, phase, seconds, text, brief):
        self._printed_at = self._clock()
        if brief or not self._brief:
            self._show(line(self._host, phase, seconds, text))


def _began_seconds(result, phase, elapsed):
    """Seconds from the beginning of the start to that of a phase which has just begun; of one that lasts, to now."""
    at = {row.get("phase"): row["at"] for row in result.get("timeline") or [] if row.get("at") is not None}
    began = at[phase] - min(at.values()) if phase in at else None
    return began if began is not None and (elapsed or 0.0) - began <= JUST_SECONDS else elapsed


def _without_notes(startup):
    """Notes are of the moment; a phase that went by has none."""
    return {name: value for name, value in startup.items() if name not in ("progress", "waiting_for")}
