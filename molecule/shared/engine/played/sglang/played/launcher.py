# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher: children, HTTP server, warm-up, and how it ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from sglang.played import faults, lines, memory, versions, web

SHUTDOWN_SECONDS = 15.0
DRAIN_LOOK_SECONDS = 0.2
DRAIN_SAY_SECONDS = 5.0


class Child:
    """A worker process and the pipe by which it tells its figures."""

    def __init__(self, kind: str, rank: int, arguments):
        self.kind, self.rank = kind, rank
        self.name = kind if kind == "detokenizer" else f"{kind}_{rank}"
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang.played.worker", kind, str(rank), str(writer)],
            stdin=subprocess.PIPE, pass_fds=[writer],
        )
        os.close(writer)
        self.process.stdin.write((json.dumps(vars(arguments)) + "\n").encode())
        self.process.stdin.flush()
        self._reader = os.fdopen(reader, "rb")

    @property
    def stays(self) -> bool:
        return self.kind == "scheduler" and self.rank == 0 and faults.leaves_child()

    def figures(self) -> dict | None:
        """What it told when it was ready; None when it ended before."""
        with self._reader:
            line = self._reader.readline()
        return json.loads(line) if line else None


class Launcher:
    """One server from its start to its end."""

    port_is_taken = False  # a fault that is played

    def __init__(self, arguments):
        self.arguments = arguments
        self.children: list[Child] = []
        self.state: web.State | None = None
        self.server: web.Server | None = None
        self._stopping = self._dying = False
        self._told, self._tell = os.pipe()
        self._first_request = threading.Lock()

    def run(self) -> None:
        logging.info(lines.server_args(self.arguments))
        signal.signal(signal.SIGQUIT, self.launch_quit)
        memory.read_model(self.arguments)
        memory.folder_of(self.arguments.tokenizer_path or self.arguments.model_path)
        figures = self.start_children()
        for line in lines.timings(figures["load_seconds"]):
            logging.info(line)
        self.state = web.State(self.arguments, figures, self.install_handlers)
        self.listen()
        threading.Thread(target=self.warm_up, daemon=True).start()
        self.wait()

    # --- start

    def start_children(self) -> dict:
        for rank in range(self.arguments.tp_size):
            self.children.append(Child("scheduler", rank, self.arguments))
        self.children.append(Child("detokenizer", 0, self.arguments))
        told = [child.figures() for child in self.children]
        for child, figures in zip(self.children, told):
            if figures is None:
                self.died_early(child)
        return told[0]

    def died_early(self, child: Child) -> None:
        code = child.process.wait()
        # A scheduler that failed has sent SIGQUIT, whose handler does not return. This is for one that was killed.
        time.sleep(0.1)
        self.kill_children()
        if versions.at_least("0.5.10"):
            raise RuntimeError(
                f"Rank {child.rank} scheduler died during initialization (exit code: {code}). If exit code is -9 "
                "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
            )
        logging.error("Rank %s scheduler is dead. Please check if there are relevant logs.", child.rank)
        logging.error("Exit code: %s", code)
        raise EOFError

    def listen(self) -> None:
        uvicorn = web.uvicorn
        uvicorn.setLevel((self.arguments.log_level_http or self.arguments.log_level).upper())
        uvicorn.info("INFO:     Started server process [%d]", os.getpid())
        uvicorn.info("INFO:     Waiting for application startup.")
        uvicorn.info("INFO:     Application startup complete.")
        host, port = self.arguments.host, self.arguments.port
        if self.port_is_taken:
            self.cannot_bind(OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
        try:
            self.server = web.Server((host, port), self.state)
        except OSError as error:
            self.cannot_bind(error)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()
        shown = f"[{host}]" if ":" in host else host
        uvicorn.info("INFO:     Uvicorn running on http://%s:%s (Press CTRL+C to quit)", shown, port)

    def cannot_bind(self, error: OSError) -> None:
        """The words of asyncio's create_server: its own for a bind, those of getaddrinfo for a name."""
        host, port = self.arguments.host, self.arguments.port
        address = (host, port, 0, 0) if ":" in host else (host, port)
        text = f"error while attempting to bind on address {address!r}: {(error.strerror or '').lower()}"
        if isinstance(error, socket.gaierror):
            text = error.strerror
        web.uvicorn.error("ERROR:    [Errno %s] %s", error.errno, text)
        self.kill_children()
        sys.exit(1)

    def warm_up(self) -> None:
        if not getattr(self.arguments, "skip_server_warmup", False):  # since 0.4.9
            self.ask("/model_info" if versions.at_least("0.5.6") else "/get_model_info")
            self.ask("/generate", {"text": "The capital city of France is",
                                   "sampling_params": {"temperature": 0, "max_new_tokens": 8}})
            if versions.at_least("0.5.20"):
                self.ask("/freeze_gc", {})
        self.state.status = "up"
        logging.info("The server is fired up and ready to roll!")
        self.after_ready()

    def after_ready(self) -> None:
        """What begins with the ready line."""

    def ask(self, path: str, data: dict | None = None) -> None:
        headers = {"Content-Type": "application/json"}
        if self.arguments.api_key:
            headers["Authorization"] = f"Bearer {self.arguments.api_key}"
        if path == "/freeze_gc" and getattr(self.arguments, "admin_api_key", None):
            headers["Authorization"] = f"Bearer {self.arguments.admin_api_key}"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.arguments.host, self.arguments.host)
        host = f"[{host}]" if ":" in host else host
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"http://{host}:{self.arguments.port}{path}", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=600) as response:
            response.read()

    # --- signals

    def install_handlers(self) -> None:
        """At the first request, as SGLang does; until then SIGTERM ends the launcher by default."""
        if self._first_request.acquire(blocking=False):
            os.write(self._tell, b"h")

    def launch_quit(self, _signal, _frame) -> None:
        logging.error("Received sigquit from a child process. It usually means the child failed.")
        self.kill_tree()

    def running_quit(self, _signal, _frame) -> None:
        if versions.at_least("0.5.6"):
            logging.error("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        else:
            logging.error("Received sigquit from a child process. It usually means the child failed.")
        self.kill_tree()

    def wait(self) -> None:
        """Without using the processor. Signal handlers write into the pipe and return."""
        signal.signal(signal.SIGCHLD, lambda _signal, _frame: os.write(self._tell, b"c"))
        while True:
            word = os.read(self._told, 1)
            if word == b"h":
                signal.signal(signal.SIGTERM, lambda _signal, _frame: os.write(self._tell, b"t"))
                signal.signal(signal.SIGQUIT, self.running_quit)
            elif word == b"t":
                self.drain()
            elif word == b"c":
                self.look_after_children()

    def look_after_children(self) -> None:
        """0.5.10 and later notice a child that was killed; before, the launcher lives on."""
        ended = [child for child in self.children if child.process.poll() not in (None, 0)]
        if not ended or self._stopping or not versions.at_least("0.5.10"):
            return
        time.sleep(0.1)  # a child that failed by itself has sent SIGQUIT
        child = ended[0]
        logging.error(
            "Subprocess %s (pid=%s) crashed with exit code %s. Triggering SIGQUIT for cleanup...",
            child.name,
            child.process.pid,
            child.process.returncode,
        )
        self.running_quit(None, None)

    # --- the end

    def drain(self) -> None:
        logging.warning("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._stopping = self.state.draining = True
        said = None
        while True:
            left = list(self.state.generator.open)
            if said is None or time.monotonic() - said >= DRAIN_SAY_SECONDS or not left:
                said = time.monotonic()
                logging.info(self.gracefully(left))
            if not left or os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in ("1", "true"):
                break
            time.sleep(DRAIN_LOOK_SECONDS)
        if versions.at_least("0.5.14"):
            self.shut_children_down()
        if versions.kills_itself_after_a_clean_stop():
            self.kill_tree()
        self.kill_children()
        if versions.at_least("0.5.20"):
            for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete.",
                         f"Finished server process [{os.getpid()}]"):
                web.uvicorn.info("INFO:     %s", text)
        logging.shutdown()
        os._exit(0)

    @staticmethod
    def gracefully(left: list[str]) -> str:
        if versions.at_least("0.5.6"):
            count = f"Remaining number of requests {len(left)}"
            return f"Gracefully exiting... {count}. Remaining requests remaining_rids={left}."
        return f"Gracefully exiting... remaining number of requests {len(left)}"

    def shut_children_down(self) -> None:
        """ShutdownReq of 0.5.14 and later: schedulers end by themselves."""
        going = [child for child in self.children if not child.stays]
        for child in going:
            try:
                child.process.stdin.write(b"shutdown\n")
                child.process.stdin.flush()
            except OSError:
                continue  # it is gone
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        while time.monotonic() < deadline and any(child.process.poll() is None for child in going):
            time.sleep(0.05)

    def kill_children(self) -> None:
        for child in self.children:
            if not child.stays and child.process.poll() is None:
                child.process.kill()
                child.process.wait()

    def kill_tree(self) -> None:
        """kill_process_tree with its parent: children, then itself, by SIGKILL."""
        if self._dying:
            return  # several ranks have failed; the first signal is being answered
        self._dying = self._stopping = True
        for line in lines.kill_tree(os.getpid(), True):
            logging.info(line)
        logging.shutdown()
        self.kill_children()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
