"""A host for unit tests: answers of systemctl and a /proc of its own. It computes nothing that the product computes."""

from __future__ import annotations

HAND_MADE = {"state": "active", "enabled": "enabled", "pid": 100, "invocation": "a" * 32}


class FakeHost:
    """``units``: name -> {"state", "enabled", "pid", "invocation", "fragment", "drop_ins"}; no other is there."""

    def __init__(self, root, units=None):
        self.units = units or {}
        self.proc = root / "proc"
        self.proc.mkdir(exist_ok=True)

    def process(self, pid, argv, environ, parent=1, kib=0):
        directory = self.proc / str(pid)
        directory.mkdir()
        (directory / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")
        (directory / "environ").write_bytes(b"\0".join(word.encode() for word in environ) + b"\0")
        (directory / "stat").write_text("%d (sglang::sched (x) y) S %d 0 0" % (pid, parent))
        # Pages of files, which many processes share, are in Pss alone.
        rollup = "Rss: 9 kB\nPss: %d kB\nPss_Anon: %d kB\nPss_File: 777 kB\nPss_Shmem: %d kB\n"
        (directory / "smaps_rollup").write_text(rollup % (kib + 777, kib - kib // 4, kib // 4))

    def run_command(self, command, **kwargs):
        if command == ["systemctl", "--version"]:
            return 0, "systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT\n", ""
        assert command[:2] == ["systemctl", "show"]
        name = command[-1]
        unit = self.units.get(name)
        if unit is None:
            return 0, "Id=%s\nLoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n" % name, ""
        lines = {
            "Id": name,
            "LoadState": "loaded",
            "ActiveState": unit["state"],
            "SubState": "running" if unit["state"] == "active" else "dead",
            "UnitFileState": unit.get("enabled", "disabled"),
            "InvocationID": unit.get("invocation", ""),
            "MainPID": unit.get("pid", 0),
            "NRestarts": 0,
            "Result": "success",
            "FragmentPath": unit.get("fragment", "/etc/systemd/system/" + name),
            "DropInPaths": " ".join(unit.get("drop_ins", ())),
        }
        return 0, "".join("%s=%s\n" % item for item in lines.items()), ""
