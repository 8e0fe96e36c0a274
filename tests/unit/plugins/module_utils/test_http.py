from __future__ import annotations

import http.server
import json
import os
import socket
import threading

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _http


class Server(http.server.ThreadingHTTPServer):
    """``routes``: path -> (status, body); what was asked is kept."""

    daemon_threads = True

    def __init__(self, routes):
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = routes
        self.asked = []


class Handler(http.server.BaseHTTPRequestHandler):
    def _answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        status, data = self.server.routes.get(self.path, (404, {"detail": "Not Found"}))
        payload = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = _answer

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(routes):
        server = Server(routes)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server, _http.Address("127.0.0.1", server.server_address[1], "sekret")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_completion_by_generate_sends_the_key(serve):
    server, address = serve({"/generate": (200, {"text": " Paris.", "meta_info": {}})})
    answer, text = _http.completion(address, "The capital of France is", 4)
    assert (answer.good, text) == (True, " Paris.")
    path, authorization, body = server.asked[0]
    assert (path, authorization) == ("/generate", "Bearer sekret")
    assert body["sampling_params"]["max_new_tokens"] == 4


def test_completion_falls_back_to_the_openai_path(serve):
    server, address = serve(
        {
            "/v1/models": (200, {"data": [{"id": "my-model", "max_model_len": 2048}]}),
            "/v1/completions": (200, {"choices": [{"text": " Lyon"}]}),
        }
    )
    dummy, text = _http.completion(address, "x")
    assert text == " Lyon"
    assert server.asked[-1][2]["model"] == "my-model"
    assert _http.context_tokens(address) == 2048


@pytest.mark.parametrize(("status", "refused"), [(401, True), (403, True), (500, False), (400, False)])
def test_an_error_is_an_answer_and_no_text(serve, status, refused):
    dummy, address = serve({"/generate": (status, {"error": "no"})})
    answer, text = _http.completion(address, "x")
    assert (answer.status, answer.refused, text) == (status, refused, None)
    assert str(status) in answer.error


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"text": 3}', b'{"choices": []}', b'{"choices": [null]}'])
def test_a_200_without_text_is_no_completion(serve, body):
    dummy, address = serve({"/generate": (200, body)})
    assert _http.completion(address, "x")[1] is None


def test_nothing_there_is_an_answer_with_a_sentence():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        answer = _http.health(_http.Address("127.0.0.1", free.getsockname()[1]))
    assert answer.status == 0
    assert "did not answer" in answer.error


def test_proxies_of_the_environment_are_not_used(serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1/")
    dummy, address = serve({"/health": (200, b"")})
    assert _http.health(address).good


def test_server_info_under_its_old_name(serve):
    dummy, address = serve({"/get_server_info": (200, {"max_total_num_tokens": 7})})
    assert _http.server_info(address).data == {"max_total_num_tokens": 7}


def test_startup_of_server_info_takes_the_least_of_the_dp_groups():
    info = {
        "max_total_num_tokens": 1000,
        "version": "0.5.23",
        "context_length": None,
        "chunked_prefill_size": 8192,
        "internal_states": [
            {"memory_usage": {"weight": 4.0, "kvcache": 2.0, "token_capacity": 1000, "startup_available": 5.5}},
            {"memory_usage": {"weight": 4.1, "kvcache": 1.9, "token_capacity": 980, "startup_available": 5.2}},
            {"memory_usage": None},
            None,
        ],
    }
    startup = _http.startup_of_server_info(info)
    assert (startup["pool_tokens"], startup["headroom_gib"], startup["kv_gib"]) == (980, 5.2, 1.9)
    assert (startup["evidence"], startup["state"], startup["context_tokens"]) == ("server_info", "ready", None)


def test_startup_of_an_empty_server_info_tells_nothing():
    assert _http.startup_of_server_info({})["pool_tokens"] is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://[::1]:30000"),
        ("10.1.2.3", "http://10.1.2.3:30000"),
        ("gpu-a", "http://gpu-a:30000"),
        ("[::1]", "http://[::1]:30000"),
    ],
)
def test_any_addresses_are_reached_by_the_loopback(host, url):
    assert _http.Address(host, 30000).base_url == url


# -- whose process listens

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 0\n"


@pytest.fixture
def proc(tmp_path):
    """A /proc with a launcher (10), its child (11), a stranger (20), and sockets of the test's choice."""
    for pid, parent in ((10, 1), (11, 10), (20, 1)):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1\n")
    (tmp_path / "net").mkdir()

    def listen(local, inode, pid, state="0A", table="tcp"):
        path = tmp_path / "net" / table
        if not path.exists():
            path.write_text(HEAD)
        path.write_text(path.read_text() + ROW.format(local=local, state=state, inode=inode))
        if pid:
            os.symlink(f"socket:[{inode}]", tmp_path / str(pid) / "fd" / str(inode))

    listen.root = str(tmp_path)
    return listen


def test_port_owner_is_found_and_descends_from_the_launcher(proc):
    proc("0100007F:7530", 501, 11)
    assert _http.port_owner(30000, proc.root, "127.0.0.1") == 11
    assert _http.descends_from(11, 10, proc.root)
    assert not _http.descends_from(20, 10, proc.root)


def test_a_connection_that_does_not_listen_is_nobodys_port(proc):
    proc("0100007F:7530", 501, 11, state="01")
    assert _http.port_owner(30000, proc.root) is None


@pytest.mark.parametrize(
    ("local", "table", "host", "reached"),
    [
        ("00000000:7530", "tcp", "127.0.0.1", True),
        ("0100007F:7530", "tcp", "127.0.0.1", True),
        ("0100007F:7530", "tcp", "10.0.0.5", False),
        ("0100007F:7531", "tcp", "127.0.0.1", False),
        ("0500000A:7530", "tcp", "10.0.0.5", True),
        ("0100007F:7530", "tcp", "0.0.0.0", True),
        ("0100007F:7530", "tcp", "gpu-a", True),
        ("00000000000000000000000000000000:7530", "tcp6", "127.0.0.1", True),
        ("00000000000000000000000001000000:7530", "tcp6", "::1", True),
        ("0000000000000000FFFF00000100007F:7530", "tcp6", "127.0.0.1", True),
    ],
)
def test_which_address_is_listened_on(proc, local, table, host, reached):
    proc(local, 501, 11, table=table)
    assert (_http.port_owner(30000, proc.root, host) == 11) is reached


def test_a_listener_whose_owner_cannot_be_read(proc):
    proc("0100007F:7530", 501, None)
    assert _http.port_owners(30000, proc.root) == []
    assert _http.port_is_open(30000, proc.root)


def test_the_real_proc_tells_this_process():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        assert _http.port_owner(port, host="127.0.0.1") == os.getpid()
    assert _http.descends_from(os.getpid(), os.getppid())
    assert _http.process_exists(os.getpid())


def test_a_zombie_does_not_exist(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (x) Z 1 1\n")
    assert not _http.process_exists(7, str(tmp_path))
    assert not _http.process_exists(8, str(tmp_path))
