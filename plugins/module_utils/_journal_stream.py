# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_stream: programs whose output is read line by line (private to the collection).

A server that serves for weeks has millions of lines behind the few of its start-up. So journalctl is read as it prints
and ended as soon as enough was read; nothing of it stays behind, whatever happens to the reader.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile

# What the programs are run with: their own words, whatever the locale of the host.
ENVIRONMENT = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "LANGUAGE": "C", "SYSTEMD_COLORS": "0"}

# A record that is longer is left out: journald cuts lines of a service at 48 KiB (LineMax=), a byte takes up to four
# characters in JSON, and no line that is read here is a hundredth of this.
MAX_LINE_BYTES = 8 * 2**20

# Of what a program says about itself.
_ERROR_BYTES = 4096


class Stream:
    """The lines of a program (bytes), as they come. ``with Stream(argv) as lines: for line in lines: ...``

    ``rc``: exit status, and ``err``: what it wrote to stderr; both from the end of the lines on. A program that was
    ended because nobody read on has rc 0.

    :raises OSError: when the program cannot be started.
    """

    def __init__(self, argv):
        self.rc = None
        self.err = ""
        with contextlib.ExitStack() as files:
            # Not a pipe: nobody would read it meanwhile, and a program that says much would wait for ever.
            self._errors = files.enter_context(tempfile.TemporaryFile())
            # run_command collects the whole output; here it is read line by line, and left when enough is known.
            self._process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=dict(os.environ, **ENVIRONMENT),
            )
            self._files = files.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __iter__(self):
        pipe = self._process.stdout
        while True:
            line = pipe.readline(MAX_LINE_BYTES)
            if not line:
                break
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = pipe.readline(MAX_LINE_BYTES)
                continue
            yield line
        self._finish(self._process.wait())

    def close(self):
        """End the program when it still runs."""
        if self.rc is None:
            self._process.kill()
            self._process.wait()
            self._finish(0)

    def _finish(self, status):
        self.rc = status
        self._process.stdout.close()
        self._errors.seek(0)
        self.err = self._errors.read(_ERROR_BYTES).decode("utf-8", "replace")
        self._files.close()


class WholeOutput:
    """The same for a ``run(argv) -> (rc, stdout, stderr)`` that cannot do otherwise: everything is read first."""

    def __init__(self, run, argv):
        self.rc, out, self.err = run(argv)
        self._lines = out.split(b"\n" if isinstance(out, bytes) else "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        pass

    def __iter__(self):
        return iter(self._lines)


class Runner:
    """Runs programs: ``runner(argv) -> (rc, stdout, stderr)`` whole, or ``runner.lines(argv)`` as a :class:`Stream`.

    :arg run: what runs them whole; raises OSError for a program that does not exist.
    """

    def __init__(self, run, stream=Stream):
        self._run = run
        self.lines = stream

    def __call__(self, argv):
        return self._run(argv)


def lines_of(run, argv):
    """The lines of a program from a :class:`Runner`, or from any other ``run(argv) -> (rc, stdout, stderr)``."""
    lines = getattr(run, "lines", None)
    return lines(argv) if lines else WholeOutput(run, argv)
