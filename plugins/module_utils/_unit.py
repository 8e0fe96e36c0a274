# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_unit: what systemd says about a unit (private to the collection).

``systemctl show`` text in, a record out. A unit in a crash loop is "active" most of the time, and a dead SGLang
launcher is "killed by SIGKILL" because it kills itself: so exits are judged from exit code and status, never from the
result, and restarts are counted.

What was seen on systemd 252 and 257, the same on both (with SGLang itself on 252), when SIGKILL ended the main process
and at other ends:

============================================ ======================== ================ ==================
unit                                         ActiveState/SubState     Result           ExecMain code
============================================ ======================== ================ ==================
Restart=on-failure, before the restart       activating/auto-restart  signal           2, status 9
the same with SuccessExitStatus=SIGKILL and
RestartForceExitStatus=SIGKILL               activating/auto-restart  success          2, status 9
the same with Restart=no besides             activating/auto-restart  success          2, status 9
all three reset (a candidate)                failed/failed            signal           2, status 9
restarted, ExecStartPre= runs                activating/start-pre     success          0, new invocation
start limit reached                          failed/failed            start-limit-hit  2, status 9
ExecStartPre= ended with 1                   activating/auto-restart  exit-code        0
stopped while it waits for its restart       inactive/dead            signal           2, status 9
stopped while SGLang 0.5.23 loads            inactive/dead            success          2, status 15
a drain cut off by TimeoutStopSec=           failed/failed            timeout          2, status 9
clean stop, unit not enabled                 inactive/dead            success          0, forgotten
============================================ ======================== ================ ==================
"""

from __future__ import annotations

import dataclasses
import signal

SHOW_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "InvocationID",
    "MainPID",
    "ExecMainPID",
    "NRestarts",
    "Result",
    "ExecMainStatus",
    "ExecMainCode",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
    "ControlGroup",
    "ActiveEnterTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
)

# ExecMainCode is the si_code of the child: CLD_EXITED, CLD_KILLED, CLD_DUMPED (waitid(2)).
EXITED, KILLED, DUMPED = 1, 2, 3

# Signals by which somebody asks for an end. A rank that died makes the launcher end by SIGKILL, never by one of these.
ASKING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Exit statuses that systemd itself sets when it could not start the program (systemd.exec(5), "Process Exit Codes").
SYSTEMD_EXIT_STATUSES = {
    200: "CHDIR",
    201: "NICE",
    202: "FDS",
    203: "EXEC",
    204: "MEMORY",
    205: "LIMITS",
    206: "OOM_ADJUST",
    207: "SIGNAL_MASK",
    208: "STDIN",
    209: "STDOUT",
    210: "CHROOT",
    211: "IOPRIO",
    212: "TIMERSLACK",
    213: "SECUREBITS",
    214: "SETSCHEDULER",
    215: "CPUAFFINITY",
    216: "GROUP",
    217: "USER",
    218: "CAPABILITIES",
    219: "CGROUP",
    220: "SETSID",
    222: "STDERR",
    224: "PAM",
    225: "NETWORK",
    226: "NAMESPACE",
    227: "NO_NEW_PRIVILEGES",
    228: "SECCOMP",
    229: "SELINUX_CONTEXT",
    230: "PERSONALITY",
    231: "APPARMOR_PROFILE",
    232: "ADDRESS_FAMILIES",
    233: "RUNTIME_DIRECTORY",
    235: "CHOWN",
    236: "SMACK_PROCESS_LABEL",
    237: "KEYRING",
    238: "STATE_DIRECTORY",
    239: "CACHE_DIRECTORY",
    240: "LOGS_DIRECTORY",
    241: "CONFIGURATION_DIRECTORY",
    242: "NUMA_POLICY",
    243: "CREDENTIALS",
    245: "BPF",
}

CONFIG_HASH_VARIABLE = b"GPUFLEET_SGLANG_CONFIG"


@dataclasses.dataclass(frozen=True)
class UnitState:
    """One reading of ``systemctl show``; times are seconds since boot (CLOCK_MONOTONIC), null when systemd has none."""

    name: str = ""
    load_state: str = ""
    active_state: str = ""
    sub_state: str = ""
    unit_file_state: str = ""
    invocation_id: str | None = None
    main_pid: int | None = None
    n_restarts: int = 0
    result: str = ""
    exec_main_status: int | None = None
    exec_main_code: int | None = None
    fragment_path: str | None = None
    drop_in_paths: tuple = ()
    need_daemon_reload: bool = False
    control_group: str | None = None
    active_enter_seconds: float | None = None
    exec_main_pid: int | None = None
    exec_main_start_seconds: float | None = None
    exec_main_exit_seconds: float | None = None

    def as_dict(self):
        """Return plain JSON types."""
        data = dataclasses.asdict(self)
        data["drop_in_paths"] = list(self.drop_in_paths)
        return data


def show_command(unit):
    """Return the argument list of the ``systemctl show`` that parse_show() reads."""
    return ["systemctl", "show", "--no-pager", "--property=" + ",".join(SHOW_PROPERTIES), "--", unit]


def _integer(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _seconds(text):
    microseconds = _integer(text)
    # 2^64-1 is systemd's "never".
    if microseconds is None or microseconds <= 0 or microseconds >= 2**63:
        return None
    return microseconds / 1e6


def _positive(text):
    number = _integer(text)
    return number if number else None


def parse_show(text):
    """Parse the output of ``systemctl show`` for one unit; unknown or missing properties stay at their defaults."""
    found = {}
    for line in str(text or "").splitlines():
        key, sep, value = line.partition("=")
        if sep and key not in found:
            found[key.strip()] = value.strip()
    return UnitState(
        name=found.get("Id", ""),
        load_state=found.get("LoadState", ""),
        active_state=found.get("ActiveState", ""),
        sub_state=found.get("SubState", ""),
        unit_file_state=found.get("UnitFileState", ""),
        invocation_id=found.get("InvocationID") or None,
        main_pid=_positive(found.get("MainPID")),
        n_restarts=_integer(found.get("NRestarts")) or 0,
        result=found.get("Result", ""),
        exec_main_status=_integer(found.get("ExecMainStatus")),
        exec_main_code=_integer(found.get("ExecMainCode")),
        fragment_path=found.get("FragmentPath") or None,
        drop_in_paths=tuple(found.get("DropInPaths", "").split()),
        need_daemon_reload=found.get("NeedDaemonReload") == "yes",
        control_group=found.get("ControlGroup") or None,
        active_enter_seconds=_seconds(found.get("ActiveEnterTimestampMonotonic")),
        exec_main_pid=_positive(found.get("ExecMainPID")),
        exec_main_start_seconds=_seconds(found.get("ExecMainStartTimestampMonotonic")),
        exec_main_exit_seconds=_seconds(found.get("ExecMainExitTimestampMonotonic")),
    )


def _waits_for_restart(state):
    # auto-restart, auto-restart-queued, and from 254 on failed-before-auto-restart and dead-before-auto-restart.
    return "auto-restart" in state.sub_state


def ended(state):
    """Tell whether the unit's current invocation is over: nothing of it will become ready any more.

    A unit that waits for its automatic restart has ended too, although ``systemctl is-active`` says "activating". One
    that runs its ExecStartPre= again has not: that is a new invocation, without a main process yet.
    """
    if state.active_state in ("failed", "inactive"):
        return True
    if _waits_for_restart(state):
        return True
    return not state.main_pid and bool(state.exec_main_code)


def is_crash_loop(state, restarts_before=0, invocation_id=None):
    """Tell whether systemd restarted the unit on its own while somebody waited for it.

    restarts_before: NRestarts when the waiting began; invocation_id: the invocation that is waited for.
    """
    if state.result == "start-limit-hit" or _waits_for_restart(state):
        return True
    if state.n_restarts > restarts_before:
        return True
    return bool(invocation_id and state.invocation_id and state.invocation_id != invocation_id and state.n_restarts)


def clean_exit(state):
    """Tell whether the main process ended well: by exit status 0, or by a signal that asks for the end.

    Result is not looked at: it says success for a crash by SIGKILL where the unit makes that a success (engines before
    0.5.20, see _unit_file), and "timeout" for a drain that was cut off. Those engines end a clean stop by SIGKILL too:
    then only the journal's "Stopping" tells the two apart.
    """
    if state.exec_main_code == KILLED:
        return state.exec_main_status in ASKING_SIGNALS
    return state.exec_main_code == EXITED and state.exec_main_status == 0


def exit_sentence(state):
    """Say in words how the main process ended, or an empty text when it did not end."""
    code, status = state.exec_main_code, state.exec_main_status
    if code in (KILLED, DUMPED):
        try:
            name = signal.Signals(status).name
        except (TypeError, ValueError):
            name = "signal {0}".format(status)
        return "killed by {0}{1}".format(name, " (core dumped)" if code == DUMPED else "")
    if code == EXITED:
        known = SYSTEMD_EXIT_STATUSES.get(status)
        return "exit status {0}{1}".format(status, " ({0}, set by systemd)".format(known) if known else "")
    return ""


def config_hash_of_environ(environ):
    """Return the configuration hash that a process was started with.

    environ: the bytes of /proc/PID/environ (NUL-separated); None when the variable is not there.
    """
    if isinstance(environ, str):
        environ = environ.encode("utf-8", "surrogateescape")
    for pair in (environ or b"").split(b"\0"):
        key, sep, value = pair.partition(b"=")
        if sep and key == CONFIG_HASH_VARIABLE:
            return value.decode("utf-8", "replace").strip() or None
    return None
