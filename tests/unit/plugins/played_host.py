"""A host that plays a recorded journal against a clock of its own: systemctl, journalctl, /proc and the HTTP side.

It shares no code with the product: entries are the recorded JSON lines, given out when their time has come.
"""

from __future__ import annotations

import json
import types
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "data" / "ready"
START = DATA / "start.jsonl"
CRASH_LOOP = DATA / "crash_loop.jsonl"
MAIN_PID = 324

# What systemctl show says of a unit whose main process was killed.
FAILED = {
    "ActiveState": "failed",
    "SubState": "failed",
    "MainPID": 0,
    "Result": "signal",
    "ExecMainCode": 2,
    "ExecMainStatus": 9,
}


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def realtime(record):
    return int(record["__REALTIME_TIMESTAMP"]) / 1e6


def invocation(record):
    return record.get("INVOCATION_ID") if record.get("_PID") == "1" else record.get("_SYSTEMD_INVOCATION_ID")


class PlayedHost:
    """``wall`` begins when the unit was started, plus ``late`` seconds; ``sleep`` moves it.

    ``units``: list of (from second on, properties of systemctl show). ``http_from``: the port is open from then on.
    ``commands``, ``given`` (cursors of the entries) and ``completions`` tell what was asked of it.
    """

    def __init__(self, rows, late=0.0, units=None, journal=True, http_from=None, owner=MAIN_PID):
        self.rows = rows
        self.began = realtime(rows[0])
        self.now = self.began + late
        self.journal = journal
        self.invocation = invocation(rows[0])
        self.units = units or [(0.0, {})]
        self.http_from = http_from
        self.owner = owner
        self.commands = []
        self.given = []
        self.completions = []
        self.answer = (200, " Paris.")
        self.pool = 2125713
        self.http = self._http()

    # -- the clock

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def seconds(self):
        return self.now - self.began

    # -- commands

    def run_command(self, argv):
        self.commands.append(argv)
        if argv[0] == "systemctl":
            return 0, self._show(argv[-1]), ""
        assert argv[0] == "journalctl"
        if not self.journal:
            return 1, "", "No journal files were found."
        return 0, self._entries(argv), ""

    def _show(self, name):
        properties = {
            "Id": name,
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "InvocationID": self.invocation,
            "MainPID": MAIN_PID,
            "NRestarts": 0,
            "Result": "success",
            "ExecMainCode": 0,
            "ExecMainStatus": 0,
        }
        for since, changes in self.units:
            if self.seconds() >= since:
                properties.update(changes)
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _entries(self, argv):
        options = dict(word.split("=", 1) for word in argv if "=" in word)
        wanted, cursor = options["_SYSTEMD_INVOCATION_ID"], options.get("--cursor")
        chosen, begun = [], cursor is None
        for row in self.rows:
            begun = begun or row["__CURSOR"] == cursor
            if begun and realtime(row) <= self.now and invocation(row) == wanted:
                chosen.append(row)
        chosen = chosen[-int(options.get("--lines", len(chosen) or 1)) :]
        self.given += [row["__CURSOR"] for row in chosen]
        return "\n".join(map(json.dumps, chosen))

    # -- /proc and HTTP

    def listens(self):
        return self.http_from is not None and self.seconds() >= self.http_from

    def _http(self):
        from ansible_collections.gpufleet.sglang.plugins.module_utils import _http as real

        def completion(address, prompt, max_tokens, timeout_seconds):
            self.completions.append(self.seconds())
            status, text = self.answer
            return real.Answer(status, error=None if status == 200 else f"status {status}"), text

        def server_info(address, timeout_seconds=10.0):
            if self.pool is None:
                return real.Answer(401, error="the server answered with status 401")
            return real.Answer(200, {"max_total_num_tokens": self.pool, "version": "0.5.23"})

        return types.SimpleNamespace(
            port_owners=lambda port, proc, host: [self.owner] if self.listens() else [],
            port_is_open=lambda port, proc, host: self.listens(),
            descends_from=lambda pid, main, proc: pid == main,
            process_exists=lambda pid, proc: True,
            health=lambda address: real.Answer(200 if self.listens() else 0),
            completion=completion,
            server_info=server_info,
            startup_of_server_info=real.startup_of_server_info,
        )
