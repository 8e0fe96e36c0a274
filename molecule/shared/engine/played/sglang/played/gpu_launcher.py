# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher of a GPU server: its ranks, their collectives, the groups that serve, and nodes that do not."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict, replace

from sglang.played import (
    cuda_lines,
    defaults,
    fault_list,
    geometry,
    gpu_generator,
    group,
    launcher,
    ledger,
    lines,
    memory,
    ranks,
    settings,
    web,
)


def wanted(arguments) -> bool:
    """Whether this start is one on GPUs: there are boards, and the arguments do not ask for the CPU."""
    return arguments.device in (None, "cuda") and ledger.read_boards() is not None


class RankChild:
    """A rank's process: commands go to its standard input, messages come from the status pipe."""

    stays = False
    kind = "scheduler"

    def __init__(self, rank: ranks.Rank, plan: dict):
        self.rank_info, self.rank, self.name = rank, rank.number, f"scheduler_{rank.number}"
        reader, writer = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang.played.gpu_worker", "scheduler", str(rank.number), str(writer)],
            stdin=subprocess.PIPE, pass_fds=[writer],
        )
        os.close(writer)
        self.done: queue.SimpleQueue = queue.SimpleQueue()
        self.send({**plan, "rank": asdict(rank)})
        self._reader = os.fdopen(reader, "rb")

    def send(self, data: dict) -> None:
        self.process.stdin.write((json.dumps(data) + "\n").encode())
        self.process.stdin.flush()

    def listen(self, events: queue.SimpleQueue) -> None:
        """Pass on what it tells; None when it has ended."""

        def read() -> None:
            for line in self._reader:
                data = json.loads(line)
                if "done" in data:
                    self.done.put(data)
                else:
                    events.put((self, data))
            events.put((self, None))

        threading.Thread(target=read, daemon=True).start()


class GpuLauncher(launcher.Launcher):
    """One server on GPUs. What it shares with the one on a CPU: HTTP, signals, the end."""

    def run(self) -> None:
        signal.signal(signal.SIGQUIT, self.launch_quit)
        folder = memory.folder_of(self.arguments.model_path)
        memory.folder_of(self.arguments.tokenizer_path or self.arguments.model_path)
        if not os.path.exists(os.path.join(folder, "config.json")):
            raise OSError(f"{folder} does not appear to have a file named config.json. Checkout the available files.")
        self.sizes = ranks.sizes_of(self.arguments)
        self.speed = settings.speed()
        self.faults = fault_list.armed()
        plan = self.plan(folder, ledger.read_boards())
        # What was computed stands in the line, and in /server_info.
        self.arguments.mem_fraction_static, self.arguments.chunked_prefill_size = plan["fraction"], plan["chunk"]
        logging.info(lines.server_args(self.arguments))
        told = self.start_ranks(folder, plan)
        if self.sizes.node > 0:
            self.serve_nothing()
        first = told[0]
        seconds = first["seconds"]
        for line in cuda_lines.timings(
            seconds["load"], seconds["pool"], seconds["all"], seconds["prefill_graph"], seconds["decode_graph"]
        ):
            logging.info(line)
        self.groups = self.make_groups(told)
        made = gpu_generator.GpuGenerator(self.groups, self.geometry.context_tokens)
        self.state = web.State(self.arguments, self.figures(first), self.install_handlers, made, self.usages(told))
        self.port_is_taken = any(fault["kind"] == "port" for fault in self.faults)
        self.listen()
        threading.Thread(target=self.warm_up_slowly, daemon=True).start()
        self.wait()

    # --- plan

    def plan(self, folder: str, boards: dict, count: bool = True) -> dict:
        """What every rank must know. count: this is a start, and has a number."""
        given, sizes = self.arguments, self.sizes
        self.geometry = geometry.read(folder, given.json_model_override_args, given.context_length, given.dtype)
        knobs = settings.read()
        self.knobs = knobs
        board_mib = min(board["total_mib"] for board in boards["boards"])
        chunk, batch = defaults.chunk_and_batch(board_mib, sizes.tp)
        chunk = chunk if given.chunked_prefill_size is None else given.chunked_prefill_size
        if sizes.attention and given.chunked_prefill_size is None:
            chunk //= sizes.dp
        most = getattr(given, "cuda_graph_max_bs_decode", None) or getattr(given, "cuda_graph_max_bs", None) or batch
        listed = getattr(given, "cuda_graph_bs_decode", None) or getattr(given, "cuda_graph_bs", None)
        algorithm = given.speculative_algorithm or ""
        fraction = given.mem_fraction_static
        if fraction is None:
            fraction = defaults.fraction(
                board_mib, sizes.tp * sizes.pp, chunk, most, bool(self.geometry.latent), algorithm,
                sizes.dp if sizes.attention else 0,
            )
        self.chunk = chunk
        draft, draft_gib = self.draft(folder, algorithm)
        nccl = knobs.nccl_gib if knobs.nccl_gib >= 0 else 1.3 if boards.get("nvlink") else 0.25
        return {
            "arguments": vars(given), "sizes": asdict(sizes), "settings": asdict(knobs),
            "geometry": asdict(self.geometry),
            "draft": draft and asdict(draft), "draft_gib": draft_gib, "chunk": chunk, "fraction": fraction,
            "batches": sorted(listed) if listed else defaults.capture_batches(most), "faults": self.faults,
            "start": fault_list.starts(given.port) if count else 1,
            "nccl_gib": nccl if sizes.tp * sizes.pp > 1 else 0.0,
            "release_seconds": float(boards.get("release_seconds", 0)),
        }

    def draft(self, folder: str, algorithm: str):
        """(geometry, GiB on a rank) of the draft model; one layer of the target where it has no folder of its own."""
        if not algorithm or algorithm.upper() == "NGRAM":
            return None, 0.0
        path = self.arguments.speculative_draft_model_path
        if path and path != self.arguments.model_path:
            found = geometry.read(memory.folder_of(path), None, self.geometry.context_tokens)
            gib = geometry.weights_gib(path, found, self.sizes.tp, 1)[0]
        else:
            found = replace(
                self.geometry, architecture=self.geometry.architecture + "NextN", layers=1, full_layers=(0,),
                sliding_layers=(), linear_layers=(), shards=1,
            )
            gib = geometry.weights_gib(folder, self.geometry, self.sizes.tp, 1)[0] / self.geometry.layers
        return found, gib if self.knobs.draft_weights_gib < 0 else self.knobs.draft_weights_gib

    def stage_weights(self, folder: str) -> list[float]:
        """GiB of the weights on a rank of each pipeline stage. Headers of a big model are read once, and remembered."""
        if self.knobs.weights_gib >= 0:
            return [self.knobs.weights_gib] * self.sizes.pp
        stamp = os.stat(os.path.join(folder, "config.json")).st_mtime_ns
        mark = json.dumps([folder, stamp, self.sizes.tp, self.sizes.pp, self.geometry.layers])
        path = os.path.join(ledger.run_folder(), "weights-" + hashlib.sha256(mark.encode()).hexdigest()[:16])
        try:
            with open(path, encoding="utf-8") as stream:
                return json.load(stream)
        except (OSError, ValueError):
            pass  # nobody has read them yet
        found = geometry.weights_gib(folder, self.geometry, self.sizes.tp, self.sizes.pp)
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as stream:
            json.dump(found, stream)
        return found

    # --- start

    def start_ranks(self, folder: str, plan: dict) -> list[dict]:
        """Start all ranks, play their collectives, and return what each told when it was ready."""
        boards = ledger.read_boards()
        by_index = {board["index"]: board for board in boards["boards"]}
        weights = self.stage_weights(folder)
        events: queue.SimpleQueue = queue.SimpleQueue()
        for rank in ranks.local(self.sizes, ranks.visible(boards["boards"]), self.arguments.base_gpu_id):
            own = {"board": by_index[rank.board], "weights_gib": weights[rank.pp]}
            child = RankChild(rank, {**plan, **own})
            child.listen(events)
            self.children.append(child)
        self.ranks = list(self.children)
        if self.sizes.node == 0:
            self.children.append(launcher.Child("detokenizer", 0, self.arguments))
        told = self.collect(events)
        for child in self.children[len(self.ranks) :]:
            child.figures()
        threading.Thread(target=self.late_words, args=(events,), daemon=True).start()
        return told

    def collect(self, events: queue.SimpleQueue) -> list[dict]:
        told: dict[int, dict] = {}
        asked: dict[tuple[int, str], list] = {}
        while len(told) < len(self.ranks):
            child, data = events.get()
            if data is None:
                self.died_early(child)
            elif "silent" in data:
                os._exit(data["silent"])
            elif "ready" in data:
                told[child.rank] = data["ready"]
            else:
                world = [one for one in self.ranks if one.rank_info.world == child.rank_info.world]
                answers = asked.setdefault((child.rank_info.world, data["least"]), [])
                answers.append(data["value"])
                if len(answers) == len(world):
                    for one in world:
                        one.send({"least": min(answers)})
        return [told[one.rank] for one in self.ranks]

    @staticmethod
    def late_words(events: queue.SimpleQueue) -> None:
        while True:
            _child, data = events.get()
            if data and "silent" in data:
                os._exit(data["silent"])

    def make_groups(self, told: list[dict]) -> list[group.Group]:
        """One for each DP rank."""
        members: dict[int, list[RankChild]] = {}
        for child in self.ranks:
            members.setdefault(child.rank_info.dp or 0, []).append(child)
        given = self.arguments
        return [
            group.Group(
                told[children[0].rank]["pool"], self.knobs, self.speed, self.chunk, not given.disable_radix_cache,
                given.decode_log_interval, self.sender(children),
            )
            for _number, children in sorted(members.items())
        ]

    @staticmethod
    def sender(children: list[RankChild]):
        """The function by which a group gives its ranks a command; it waits for passes."""
        number = [0]

        def send(command: dict, line: str | None, level: int | None) -> None:
            number[0] += 1
            for child in children:
                extra = {"say": line, "level": level or logging.INFO} if line and child is children[0] else {}
                if "forward" in command:
                    extra["id"] = number[0]
                if command or extra:
                    child.send({**command, **extra})
            if "forward" in command:
                for child in children:
                    child.done.get()

        return send

    # --- serving

    def figures(self, first: dict) -> dict:
        shape = self.geometry
        model = {
            "architecture": shape.architecture, "model_type": shape.model_type, "context_tokens": shape.context_tokens,
            "weight_gib": first["weights_gib"],
        }
        return {"pool": first["pool"], "model": model}

    def usages(self, told: list[dict]) -> list[dict]:
        """For each DP rank: its first rank's figures."""
        found, seen = [], set()
        for child, data in zip(self.ranks, told):
            if (child.rank_info.dp or 0) not in seen:
                seen.add(child.rank_info.dp or 0)
                graphs = {phase.removeprefix("target_"): gib for phase, gib in data["graphs"].items()}
                found.append({"pool": data["pool"], "weight_gib": data["weights_gib"], "graphs": graphs})
        return found

    def warm_up_slowly(self) -> None:
        seconds = self.knobs.warmup_seconds / self.speed
        for fault in [one for one in self.faults if one["at"] == "warmup"]:
            time.sleep(float(fault.get("after_seconds", 0)))
            if fault["kind"] == "hang":
                return
            if fault["kind"] == "slow":
                time.sleep(float(fault.get("seconds", 5)))
            elif fault["kind"] == "silent":
                os._exit(int(fault.get("code", 1)))
            else:
                address = f"host={self.arguments.host!r}, port={self.arguments.port}"
                text = f"HTTPConnectionPool({address}): Read timed out. (read timeout=600)"
                try:
                    raise fault_list.exception(fault.get("text") or f"requests.exceptions.ReadTimeout: {text}")
                except Exception:
                    logging.error("Initialization failed. warmup error: %s", traceback.format_exc())
                self.kill_tree()
        time.sleep(seconds)
        self.warm_up()

    def after_ready(self) -> None:
        for child in self.ranks:
            with contextlib.suppress(OSError):  # it is gone
                child.send({"fired_up": True})

    def serve_nothing(self) -> None:
        """A node of rank > 0: a server that says it is well, until the ranks end; then exit status 0."""
        host, port = self.arguments.host, self.arguments.port

        class Well(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.path in ("/ping", "/health", "/health_generate") else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args):
                """It says nothing."""

        server = http.server.ThreadingHTTPServer((host, port), Well)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        logging.info(cuda_lines.dummy_health(host, port))
        self.after_ready()
        for child in self.ranks:
            child.process.wait()
            logging.error(
                "Scheduler or DataParallelController %s terminated with %s", child.process.pid, child.process.returncode
            )
        logging.shutdown()
        os._exit(0)

    def shut_children_down(self) -> None:
        for child in self.ranks:
            try:
                child.send({"quit": True})
            except OSError:
                continue
        self.ranks_end(launcher.SHUTDOWN_SECONDS)
        for child in self.children[len(self.ranks) :]:
            child.process.kill()

    def ranks_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(child.process.poll() is None for child in self.ranks):
            time.sleep(0.05)
