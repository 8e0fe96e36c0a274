"""Looking at what loads: /proc, nvidia-smi, the model's files and the disk below them."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _load_progress, _witness_tool
from ansible_collections.gpufleet.sglang.plugins.module_utils._patience import Process

STAT = "{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 100 0 5 0 {user} {system} {cuser} {csystem} 20 0 9 0 500 0 0\n"
TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Proc:
    """A folder that plays /proc."""

    def __init__(self, root):
        self.root = root

    def add(self, pid, parent, name="python3", state="S", ticks=(0, 0, 0, 0), io=None, pages=0, wchan="0", argv=()):
        folder = self.root / str(pid)
        folder.mkdir()
        user, system, cuser, csystem = ticks
        text = STAT.format(
            pid=pid, name=name, state=state, parent=parent, user=user, system=system, cuser=cuser, csystem=csystem
        )
        (folder / "stat").write_text(text)
        (folder / "statm").write_text(f"9999 {pages} 5 1 0 7 0\n")
        (folder / "wchan").write_text(wchan)
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        if io is not None:
            (folder / "io").write_text("rchar: {}\nwchar: {}\nsyscr: 5\nread_bytes: {}\nwrite_bytes: 0\n".format(*io))


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "proc").mkdir()
    return Proc(tmp_path / "proc")


def test_tree_is_the_main_process_and_all_below_it(proc):
    proc.add(100, 1, ticks=(10, 5, 0, 0), io=(1000, 10, 400), pages=3)
    proc.add(101, 100, name="sglang::sched) (x", state="D", ticks=(100, 0, 50, 50), wchan="rpc_wait_bit_killable")
    proc.add(102, 101, name="ninja")
    proc.add(200, 1)
    found = _load_progress.tree(100, str(proc.root))
    assert found == (
        Process(100, "python3", "S", 15 * TICK, 1410, 400, 3 * PAGE, ""),
        Process(101, "sglang::sched) (x", "D", 200 * TICK, None, None, 0, "rpc_wait_bit_killable"),
        Process(102, "ninja", "S", 0.0, None, None, 0, ""),
    )


def test_a_process_that_is_not_there_has_no_tree(proc):
    proc.add(200, 1)
    assert _load_progress.tree(100, str(proc.root)) == ()
    assert _load_progress.tree(100, str(proc.root / "nowhere")) == ()


@pytest.mark.parametrize("text", ["", "nonsense", "1 (a) S 1", "1 (a) S x " + "0 " * 20, "1 (a) S 1 " + "x " * 20])
def test_what_is_no_stat(text):
    assert _load_progress.stat_of(text) is None


@pytest.mark.parametrize("text", ["", "rchar", "read_bytes: 5\n", "rchar: many\n"])
def test_what_is_no_io(text):
    assert _load_progress.io_of(text) == (None, None)


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["python", "-m", "sglang.launch_server", "--model-path", "/m"], "/m"),
        (["x", "--model-path=/m"], "/m"),
        (["x", "--model-path", "/a", "--model-path", "/b"], "/b"),
        (["x", "--model", "/c"], "/c"),
        (["x", "--model-path"], None),
        ([], None),
    ],
)
def test_argument_of(proc, argv, value):
    proc.add(100, 1, argv=argv)
    assert _witness_tool.argument_of(100, ("--model-path", "--model"), str(proc.root)) == value


def test_a_real_process_that_computes_reads_and_keeps(tmp_path):
    """The figures of /proc mean what is said of them: 0.3 s of CPU time, 20 MB read by calls, 60 MB resident."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 20_000_000)
    code = (
        "import sys,time\nkept=bytearray(60_000_000)\ndata=open(sys.argv[1],'rb').read()\nend=time.process_time()+0.3\n"
        "while time.process_time()<end: pass\nprint('done',flush=True)\ntime.sleep(30)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            (found,) = _load_progress.tree(child.pid)
        finally:
            child.kill()
    assert found.state in "SR"
    assert found.cpu_seconds >= 0.3 - TICK
    assert found.io_bytes >= 20_000_000
    assert found.resident_bytes >= 60_000_000


# -- boards

APPS = """GPU-aa, 101, sglang::scheduler_TP0, 40000
GPU-bb, 102, sglang::scheduler_TP1, 41000
GPU-bb, 999, somebody else, 5000
GPU-cc, 103, sglang::scheduler_TP2, [N/A]
"""


def test_held_mib_is_of_the_units_processes():
    assert _load_progress.held_mib(APPS, {100, 101, 102}) == (81000, 2)
    assert _load_progress.held_mib(APPS, {103}) == (None, 0)
    assert _load_progress.held_mib("", {101}) == (None, 0)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def wait_for(condition):
    until = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_boards_are_asked_beside_and_not_too_often():
    clock, asked = Clock(), []

    def run(argv, timeout_seconds):
        asked.append(argv)
        return 0, APPS, ""

    boards = _load_progress.Boards("/bin/nvidia-smi", clock, run)
    boards.look([101])
    wait_for(lambda: boards.mib is not None)
    assert (boards.mib, boards.count) == (40000, 1)
    assert asked[0][:2] == ["/bin/nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"]
    clock.now += 5.0
    boards.look([101])
    assert len(asked) == 1
    clock.now += 6.0

    def look_again():
        boards.look([102])  # the thread before may take a moment to end
        return boards.mib == 41000

    wait_for(look_again)


def test_a_tool_that_hangs_is_asked_once_and_holds_nobody_up(tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    tool.chmod(0o755)
    clock = Clock()
    boards = _load_progress.Boards(str(tool), clock)
    began = time.monotonic()
    for _turn in range(3):
        boards.look([1])
        clock.now += 60.0
    assert time.monotonic() - began < 2.0
    assert boards.mib is None


def is_gone(pid):
    stat = _load_progress.stat_of(_load_progress._text("/proc", str(pid), "stat"))
    return stat is None or stat[1] == "Z"


def test_a_tool_that_did_not_answer_is_not_asked_again_and_leaves_nothing(tmp_path, monkeypatch):
    # A script: its child would live on when only the script itself is ended.
    mark = str(tmp_path / "child")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nsleep 30 &\necho $! >{mark}.new; mv {mark}.new {mark}\nwait\n")
    tool.chmod(0o755)
    # Long enough for a busy machine to start the script.
    monkeypatch.setattr(_load_progress, "BOARDS_TIMEOUT_SECONDS", 2.0)
    clock = Clock()
    boards = _load_progress.Boards(str(tool), clock)
    boards.look([1])
    assert not boards.hangs
    clock.now += 3.0
    assert boards.hangs
    wait_for(lambda: boards._silent)
    with open(mark, encoding="ascii") as stream:
        child = int(stream.read())
    wait_for(lambda: is_gone(child))
    clock.now += 60.0
    asked = boards._thread
    boards.look([1])
    # Not asked again: the thread of the first question is still the last one, whether or not it has just ended.
    assert boards._thread is asked
    assert boards.hangs
    # The next slice remembers.
    silent = _load_progress.Boards(str(tool), clock, lambda argv, seconds: pytest.fail("asked"), silent=True)
    silent.look([1])
    assert silent.hangs


def test_what_still_runs_at_the_end_is_ended(tmp_path):
    code = (
        "import threading,time\n"
        "from ansible_collections.gpufleet.sglang.plugins.module_utils import _witness_tool as t\n"
        f"a=['sh','-c','sleep 30 & echo $! >{tmp_path}/p; wait']\n"
        "threading.Thread(target=lambda: t.run_limited(a, 30), daemon=True).start()\n"
        f"import os\nwhile not os.path.exists('{tmp_path}/p') or not open('{tmp_path}/p').read(): time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)
    wait_for(lambda: is_gone((tmp_path / "p").read_text().strip()))


def test_without_a_tool_nobody_is_asked():
    boards = _load_progress.Boards(None, Clock(), lambda argv, seconds: pytest.fail("asked"))
    boards.look([1])
    assert boards.mib is None


def test_find_nvidia_smi(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _witness_tool.find_command() is None or str(tmp_path) not in _witness_tool.find_command()
    tool.chmod(0o755)
    assert _witness_tool.find_command() == str(tool)
    assert _witness_tool.find_command(str(tool)) == str(tool)
    assert _witness_tool.find_command(str(tmp_path / "none")) is None


# -- files and disks


def test_weight_files_bytes(tmp_path):
    (tmp_path / "model-00001.safetensors").write_bytes(b"x" * 100)
    (tmp_path / "model-00002.safetensors").write_bytes(b"x" * 50)
    (tmp_path / "config.json").write_bytes(b"x" * 7)
    (tmp_path / "blob").write_bytes(b"x" * 9)
    (tmp_path / "model-00003.safetensors").symlink_to("blob")
    assert _load_progress.weight_files_bytes(str(tmp_path)) == 159
    assert _load_progress.weight_files_bytes(str(tmp_path / "none")) is None
    (tmp_path / "empty").mkdir()
    assert _load_progress.weight_files_bytes(str(tmp_path / "empty")) is None
    assert _load_progress.weight_files_bytes("org/model-of-a-hub") is None


def plays_sys(tmp_path, path, target, rotational, slaves=()):
    """A /sys in which the disk below *path* is *target*, such as ``nvme0n1/nvme0n1p1``."""
    sys_root = tmp_path / "sys"
    number = os.stat(path).st_dev
    device = sys_root / "devices" / target
    device.mkdir(parents=True)
    if "/" in target:
        (device / "partition").write_text("1\n")
    for slave in slaves:
        (sys_root / "devices" / slave).mkdir(parents=True)
        (device / "slaves").mkdir(exist_ok=True)
        (device / "slaves" / os.path.basename(slave)).symlink_to(sys_root / "devices" / slave)
    (sys_root / "dev" / "block").mkdir(parents=True)
    (sys_root / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}").symlink_to(device)
    for name, value in rotational.items():
        (sys_root / "block" / name / "queue").mkdir(parents=True)
        (sys_root / "block" / name / "queue" / "rotational").write_text(f"{value}\n")
    return str(sys_root)


@pytest.mark.parametrize(
    ("target", "rotational", "slaves", "name"),
    [
        ("nvme0n1/nvme0n1p1", {"nvme0n1": 0}, (), "nvme"),
        ("sda/sda1", {"sda": 1}, (), "rotational"),
        ("sda/sda1", {"sda": 0}, (), "ssd"),
        ("md0", {"nvme0n1": 0, "nvme1n1": 0}, ("nvme0n1", "nvme1n1"), "nvme"),
        ("dm-0", {"nvme0n1": 0, "sda": 1}, ("nvme0n1", "sda"), "rotational"),
        ("vda", {}, (), "unknown"),
    ],
)
def test_disk_below(tmp_path, proc, target, rotational, slaves, name):
    (proc.root / "mounts").write_text("/dev/x / ext4 rw 0 0\n")
    sys_root = plays_sys(tmp_path, tmp_path, target, rotational, slaves)
    assert _load_progress.disk_below(str(tmp_path), str(proc.root), sys_root).name == name


def test_disk_below_a_network_folder(tmp_path, proc):
    (proc.root / "mounts").write_text(f"/dev/x / ext4 rw 0 0\nnas:/m {tmp_path} nfs rw 0 0\n")
    assert _load_progress.disk_below(str(tmp_path), str(proc.root), str(tmp_path / "sys")).name == "network"
    assert _load_progress.disk_below("/nowhere/at/all", str(proc.root), "/nosys").name == "unknown"


# -- all of it


class NoBoards:
    mib = None
    count = 0

    def look(self, pids):
        pass


def test_a_look_samples_every_five_seconds_and_hears_every_line():
    clock, asked = Clock(), []

    def read_tree(pid, proc_root):
        asked.append(clock.now)
        return (Process(pid, cpu_seconds=1.0, io_bytes=len(asked) * 2**21, read_bytes=len(asked) * 2**20),)

    look = _load_progress.LoadLook(clock, boards=NoBoards(), read_tree=read_tree)
    for _turn in range(20):
        look.look(7, "weights", None)
        clock.now += 1.0
    assert asked == [100.0, 105.0, 110.0, 115.0]
    assert look.marks.sign_at == 115.0
    assert look.grown_gib() is None
    assert look.read_bytes() == 4 * 2**20
    clock.now = 117.0
    look.look(7, "weights", "a line")
    assert (look.marks.sign_at, look.marks.last) == (117.0, "a line")


def test_a_look_goes_on_where_the_slice_before_ended():
    clock = Clock()
    first = _load_progress.LoadLook(clock, boards=NoBoards(), read_tree=lambda pid, root: (Process(pid),))
    first.look(7, "weights", "x")
    clock.now += 200.0
    second = _load_progress.LoadLook(
        clock, marks=first.marks.as_dict(), boards=NoBoards(), read_tree=lambda pid, root: (Process(pid),)
    )
    second.look(7, "weights", "x")
    assert second.marks.sign_at == 100.0


def test_without_a_process_there_is_no_sample_of_it():
    look = _load_progress.LoadLook(Clock(), boards=NoBoards(), read_tree=lambda pid, root: pytest.fail("read"))
    look.look(None, "process", None)
    assert look.sample.processes == ()


def test_growth_of_the_boards():
    clock, boards = Clock(), NoBoards()
    look = _load_progress.LoadLook(clock, boards=boards, read_tree=lambda pid, root: (Process(pid),))
    boards.mib = 1024
    look.look(7, "init", None)
    clock.now += 5.0
    boards.mib = 11264
    look.look(7, "weights", None)
    assert look.grown_gib() == 10.0
