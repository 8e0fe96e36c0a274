# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP server: which path answers what, who may ask, and uvicorn's lines."""

from __future__ import annotations

import http.server
import json
import logging
import socket
import socketserver
import time

from sglang.played import generator, versions, web_info

ADMIN_PATHS = ("/flush_cache", "/freeze_gc", "/start_profile", "/stop_profile", "/set_internal_state")
OPEN_PATHS = ("/health", "/ready", "/metrics")
uvicorn = logging.getLogger("uvicorn")


class State:
    """What the answers are made from. ``status``: starting, up. ``draining``: SIGTERM has come."""

    def __init__(self, arguments, figures: dict, on_first_request, made=None, usages=None):
        """made: what answers, on a CPU a Generator. usages: figures of each DP rank, on GPUs."""
        self.arguments = arguments
        self.pool, self.model = figures["pool"], figures["model"]
        self.generator = made or generator.Generator(
            self.pool, self.model["context_tokens"], not arguments.disable_radix_cache, arguments.decode_log_interval
        )
        self.usages = usages or [{"pool": self.pool, "weight_gib": self.model["weight_gib"], "graphs": {}}]
        self.status = "starting"
        self.draining = False
        self.on_first_request = on_first_request
        self.began = int(time.time())

    def request(self, body: dict, *asked):
        """A request for the generator, on GPUs with the DP rank that it names (two spellings by version)."""
        rank = body.get("routed_dp_rank", body.get("data_parallel_rank"))
        more = {"dp_rank": int(rank)} if rank is not None and hasattr(self.generator, "groups") else {}
        return self.generator.request(*asked, **more)

    @property
    def name(self) -> str:
        return self.arguments.served_model_name or self.arguments.model_path


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address, state: State):
        self.state = state
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def server_bind(self):
        # Without HTTPServer's look-up of the host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        """A client that went away is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    # --- in and out

    def log_message(self, format, *args):
        """Lines are written where a status is sent."""

    def log_request(self, code="-", size="-"):
        status = http.HTTPStatus(code)
        host, port = self.client_address[:2]
        line = f'{host}:{port} - "{self.command} {self.path} HTTP/1.1" {status.value} {status.phrase}'
        uvicorn.info("INFO:     %s", line)

    def answer(self, data=None, status: int = 200, kind: str = "application/json") -> None:
        body = b"" if data is None else data.encode() if isinstance(data, str) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            text = event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def body(self) -> dict:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = json.loads(text or b"{}")
        return data if isinstance(data, dict) else {}

    # --- who may ask

    def refused(self, path: str) -> bool:
        arguments = self.server.state.arguments
        wanted = arguments.api_key
        if path.startswith(ADMIN_PATHS) and getattr(arguments, "admin_api_key", None):
            wanted = arguments.admin_api_key
        if not wanted or path.startswith(OPEN_PATHS):
            return False
        kind, _space, given = (self.headers.get("Authorization") or "").partition(" ")
        return kind.lower() != "bearer" or given != wanted

    def do_GET(self):
        self.dispatch(GET)

    def do_POST(self):
        self.dispatch(POST)

    def dispatch(self, table: dict) -> None:
        path = self.path.partition("?")[0]
        try:
            body = self.body() if self.command == "POST" else {}
        except ValueError as error:
            self.answer({"error": {"message": f"Invalid JSON: {error}"}}, 400)
            return
        if self.refused(path):
            self.answer({"error": "Unauthorized"}, 401)
            return
        first, method = table.get(path, ("99", None))
        if method is None or not versions.at_least(first):
            self.answer({"detail": "Not Found"}, 404)
            return
        getattr(self, method)(body)

    # --- paths

    def health(self, _body):
        self.answer(status=200 if web_info.is_well(self.server.state, "generate" in self.path) else 503)

    def ready(self, _body):
        state = self.server.state
        self.answer(status=503 if state.draining or state.status == "starting" else 200)

    def ping(self, _body):
        self.answer()

    def old_model_info(self, body):
        if versions.at_least("0.5.6"):
            logging.warning("Endpoint '/get_model_info' is deprecated and will be removed in a future version.")
        self.model_info(body)

    def model_info(self, _body):
        state = self.server.state
        self.answer({
            "model_path": state.arguments.model_path,
            "served_model_name": state.name,
            "tokenizer_path": state.arguments.tokenizer_path or state.arguments.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "model_type": state.model["model_type"],
            "architectures": [state.model["architecture"]],
        })

    def old_server_info(self, body):
        if versions.at_least("0.5.6"):
            logging.warning("Endpoint '/get_server_info' is deprecated and will be removed in a future version.")
        self.server_info(body)

    def server_info(self, _body):
        self.answer(web_info.server_info(self.server.state))

    def models(self, _body):
        state = self.server.state
        self.answer({"object": "list", "data": [{
            "id": state.name, "object": "model", "created": state.began, "owned_by": "sglang", "root": state.name,
            "parent": None, "max_model_len": state.model["context_tokens"],
        }]})

    def metrics(self, _body):
        state = self.server.state
        if not state.arguments.enable_metrics:
            self.answer({"detail": "Not Found"}, 404)
            return
        self.answer(web_info.metrics(state), kind="text/plain; version=0.0.4; charset=utf-8")

    def flush(self, _body):
        groups = getattr(self.server.state.generator, "groups", [])
        flushed = [group.flush() for group in groups]
        if all(flushed):
            self.answer("Cache flushed.\n", kind="text/plain")
        else:
            self.answer("Flush cache failed.\n", 400, kind="text/plain")

    def nothing(self, _body):
        self.answer("", kind="text/plain")

    # --- answers

    def generate(self, body):
        parameters = body.get("sampling_params") or {}
        state = self.server.state
        state.on_first_request()
        ids, text = body.get("input_ids"), body.get("text") or ""
        new = parameters.get("max_new_tokens")
        stream = bool(body.get("stream"))
        try:
            wanted = 128 if new is None else int(new)
            request = state.request(body, ids, text, wanted, bool(parameters.get("ignore_eos")))
        except ValueError as error:
            logging.error("[http_server] Error: %s", error)
            if stream:
                told = {"message": str(error), "type": "invalid_request_error", "code": 400, "retryable": False}
                self.stream([{"error": told}, "[DONE]"])
            else:
                self.answer({"error": {"message": str(error)}}, 400)
            return
        events = (
            {"text": said, "output_ids": made, "meta_info": meta}
            for said, made, meta in state.generator.answer(request)
        )
        if stream:
            self.stream(then_done(events))
        else:
            *_before, last = events
            self.answer(last)

    def completions(self, body):
        state = self.server.state
        state.on_first_request()
        prompt = body.get("prompt", "")
        ids = prompt if isinstance(prompt, list) else None
        try:
            request = state.request(
                body, ids, "" if ids else prompt, int(body.get("max_tokens") or 16), bool(body.get("ignore_eos"))
            )
        except ValueError as error:
            told = {"object": "error", "message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            self.answer(told, 400)
            return
        if body.get("stream"):
            self.stream(then_done(self.completion_events(request)))
            return
        *_before, (text, _ids, meta) = state.generator.answer(request)
        self.answer(self.completion(request, text, meta, "text_completion", usage_of(meta)))

    def chat(self, body):
        """Chat in one piece or as events. An image counts as 1,024 tokens."""
        parts = [message.get("content") or "" for message in body.get("messages", [])]
        flat = [one for part in parts for one in (part if isinstance(part, list) else [{"type": "text", "text": part}])]
        text = " ".join(one.get("text", "") for one in flat)
        images = sum(1 for one in flat if one.get("type") == "image_url")
        ids = None if not images else generator.tokens_of(text) + [7] * 1024 * images
        wanted = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        self.server.state.on_first_request()
        try:
            request = self.server.state.request(body, ids, text, wanted, bool(body.get("ignore_eos")))
        except ValueError as error:
            told = {"object": "error", "message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            self.answer(told, 400)
            return
        if body.get("stream"):
            self.stream(then_done(self.completion_events(request, "chat.completion.chunk")))
            return
        *_before, (text, _ids, meta) = self.server.state.generator.answer(request)
        self.answer(self.completion(request, text, meta, "chat.completion", usage_of(meta)))

    def completion_events(self, request, kind="text_completion"):
        said = 0
        for text, _ids, meta in self.server.state.generator.answer(request):
            usage = usage_of(meta) if meta["finish_reason"] else None
            yield self.completion(request, text[said:], meta, kind, usage)
            said = len(text)

    def completion(self, request, text, meta, kind, usage):
        reason = (meta["finish_reason"] or {}).get("type")
        said = {"text": text}
        if kind.startswith("chat"):
            said = {"delta" if kind.endswith("chunk") else "message": {"role": "assistant", "content": text}}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason, "matched_stop": None}
        return {
            "id": request.rid, "object": kind, "created": int(time.time()), "model": self.server.state.name,
            "choices": [choice],
            "usage": usage,
        }


def usage_of(meta: dict) -> dict:
    prompt, answer = meta["prompt_tokens"], meta["completion_tokens"]
    return {
        "prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer,
        "prompt_tokens_details": None,
    }


def then_done(events):
    yield from events
    yield "[DONE]"


# Path -> (first version that has it, method).
GET = {
    "/health": ("0.0", "health"),
    "/health_generate": ("0.0", "health"),
    "/ready": ("0.5.20", "ready"),
    "/ping": ("0.0", "ping"),
    "/get_model_info": ("0.0", "old_model_info"),
    "/model_info": ("0.5.6", "model_info"),
    "/get_server_info": ("0.0", "old_server_info"),
    "/server_info": ("0.5.6", "server_info"),
    "/v1/models": ("0.0", "models"),
    "/metrics": ("0.0", "metrics"),
    "/flush_cache": ("0.0", "flush"),
}
POST = {
    "/generate": ("0.0", "generate"),
    "/v1/completions": ("0.0", "completions"),
    "/v1/chat/completions": ("0.0", "chat"),
    "/flush_cache": ("0.0", "flush"),
    "/freeze_gc": ("0.0", "nothing"),
}
