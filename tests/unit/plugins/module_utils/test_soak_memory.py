from __future__ import annotations

import sys
import time
import types

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak_memory


def test_meminfo():
    text = "MemTotal: 24000000 kB\nMemFree: 1 kB\nMemAvailable:   20971520 kB\n"
    assert _soak_memory.meminfo_free_gib(text) == {"cpu": 20.0}
    assert _soak_memory.meminfo_free_gib("") == {}
    assert _soak_memory.meminfo_sampler("/does/not/exist")() == {}


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("0, 5672\n1, 5700\n", {"0": 5672 / 1024, "1": 5700 / 1024}),
        ("0, [N/A]\n", {}),
        ("No devices were found\n", {}),
        ("", {}),
    ],
)
def test_nvidia_smi(text, free):
    assert _soak_memory.nvidia_smi_free_gib(text) == free


@pytest.mark.parametrize(("boards", "seen"), [([], {"0", "1"}), ([1], {"1"})])
def test_only_the_boards_of_the_server_are_sampled(boards, seen):
    def run_command(argv):
        return 0, "0, 100\n1, 200\n", ""

    assert set(_soak_memory.SmiSampler(run_command, "nvidia-smi", boards)()) == seen


def test_nvidia_smi_that_does_not_work_is_no_sample():
    def missing(argv):
        raise FileNotFoundError(argv[0])

    assert _soak_memory.SmiSampler(missing, "nvidia-smi", [])() == {}
    assert _soak_memory.SmiSampler(lambda argv: (9, "0, 100", "no driver"), "nvidia-smi", [])() == {}


class Library:
    """The functions of pynvml that are used."""

    def __init__(self, free=(2.0, 3.0), works=True):
        self.free = free
        self.works = works

    def nvmlInit(self):
        if not self.works:
            raise RuntimeError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.free)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(free=int(self.free[handle] * 2**30))


@pytest.mark.parametrize(("boards", "free"), [([], {"0": 2.0, "1": 3.0}), ([1], {"1": 3.0})])
def test_nvml(boards, free):
    assert _soak_memory.NvmlSampler(Library(), boards, dict)() == free


def test_a_board_that_is_lost_ends_no_sampling():
    library = Library()
    sample = _soak_memory.NvmlSampler(library, [], lambda: {"0": 1.0})
    library.free = []
    assert sample() == {"0": 1.0}


def test_a_loop_that_hangs_is_not_believed(tmp_path):
    now = [0.0]
    hangs = program(tmp_path, 'echo "0, 2048"\nexec sleep 60\n')
    loop = _soak_memory.SmiLoop(hangs, [0], lambda: {"0": 99.0}, clock=lambda: now[0])
    try:
        assert until(lambda: loop._last.get("0") == 2.0)
        now[0] = 1.9
        assert loop() == {"0": 2.0}
        now[0] = 2.1
        assert loop() == {"0": 99.0}
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("library", "nvidia_smi", "kind"),
    [
        (Library(), "nvidia-smi", _soak_memory.NvmlSampler),
        (Library(works=False), "nvidia-smi", _soak_memory.SmiLoop),
        (None, "nvidia-smi", _soak_memory.SmiLoop),
        # A path of the user's own is taken at its word.
        (Library(), "/opt/fake/nvidia-smi", _soak_memory.SmiLoop),
    ],
)
def test_which_sampler(monkeypatch, library, nvidia_smi, kind):
    monkeypatch.setitem(sys.modules, "pynvml", library)
    options = {"device": "cuda", "nvidia_smi": nvidia_smi, "boards": []}
    assert isinstance(_soak_memory.sampler_of(options, None), kind)


def program(tmp_path, text):
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def until(condition):
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_the_loop_keeps_the_least_between_two_looks(tmp_path):
    # The spike of a moment, and the arguments of the real program.
    text = f'echo "$@" > {tmp_path}/words\nprintf "0, 2048\\n1, 4096\\n0, 512\\n0, 1024\\n"\nexec sleep 60\n'
    loop = _soak_memory.SmiLoop(program(tmp_path, text), [0], lambda: {"0": 99.0})
    try:
        assert until(lambda: loop._last.get("0") == 1.0)
        assert loop() == {"0": 0.5}
        assert loop() == {"0": 1.0}
        assert "-lms 100" in (tmp_path / "words").read_text()
    finally:
        loop.close()
    assert loop._process.poll() is not None
    assert loop() == {"0": 99.0}


@pytest.mark.parametrize("text", ["exit 2", None])
def test_a_program_without_a_loop_is_asked_each_time(tmp_path, text):
    path = program(tmp_path, text) if text else str(tmp_path / "none")
    loop = _soak_memory.SmiLoop(path, [], lambda: {"0": 99.0})
    assert until(lambda: loop._process is None or loop._process.poll() is not None)
    assert loop() == {"0": 99.0}
    loop.close()
