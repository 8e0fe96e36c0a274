# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: talking to the server. Health, information, one completion, and whose process listens on the port.

Private to the gpufleet.sglang collection; may change at any time.

Nothing here raises for what a server does: every call returns an :class:`Answer`. It is made without urllib, so that
neither the environment's proxies nor ``.netrc`` nor a redirection lead elsewhere: the question is whether *this* host's
process answers. (``open_url`` would also make a TLS context for each call, 50 ms of CPU time.)
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import time
from dataclasses import dataclass
from typing import Any

AGENT = "gpufleet.sglang"

# Answers of a server that will never be given with the key at hand.
REFUSED_STATUS = (401, 403)

# Server arguments that tell how many ranks there are and which board each has.
LAYOUT_ARGUMENTS = ("tp_size", "pp_size", "dp_size", "nnodes", "node_rank", "base_gpu_id", "gpu_id_step")

# State of a listening socket in /proc/net/tcp (include/net/tcp_states.h, TCP_LISTEN).
_LISTEN = "0A"


@dataclass(frozen=True)
class Answer:
    """What a server said.

    ``status`` is the HTTP status, or 0 when nothing answered; ``data`` the parsed JSON body or None; ``text`` the
    body otherwise (at most 2,000 characters); ``error`` one sentence or None; ``seconds`` how long it took.
    """

    status: int
    data: Any = None
    text: str = ""
    error: str | None = None
    seconds: float = 0.0

    @property
    def good(self):
        return self.status == 200

    @property
    def refused(self):
        return self.status in REFUSED_STATUS


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the key it wants. ``host`` may be what the server binds to (0.0.0.0, ::)."""

    host: str = "127.0.0.1"
    port: int = 30000
    api_key: str | None = None

    @property
    def base_url(self):
        return f"http://{_reachable_host(self.host)}:{self.port}"

    @property
    def secrets(self):
        """What no text may show."""
        return (self.api_key,) if self.api_key else ()


def _reachable_host(host):
    """The host to connect to for a bind address: any-addresses are reached by the loopback, IPv6 is bracketed."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
    return f"[{address}]" if address.version == 6 else str(address)


def call(address, path, payload=None, timeout_seconds=5.0):
    """One request: GET, or POST of ``payload`` as JSON. Returns an :class:`Answer`; never raises for the network."""
    headers = {"Accept": "application/json", "User-Agent": AGENT}
    if address.api_key:
        headers["Authorization"] = "Bearer " + address.api_key
    data = None
    if payload is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(payload).encode("utf-8")
    began = time.monotonic()
    connection = http.client.HTTPConnection(
        _reachable_host(address.host).strip("[]"), address.port, timeout=timeout_seconds
    )
    try:
        connection.request("GET" if data is None else "POST", path, body=data, headers=headers)
        response = connection.getresponse()
        return _answer(response.status, response.read(), time.monotonic() - began)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(
            0,
            error=f"{address.base_url + path} did not answer: {error or type(error).__name__}",
            seconds=time.monotonic() - began,
        )
    finally:
        connection.close()


def _answer(status, body, seconds):
    text = body.decode("utf-8", "replace")
    try:
        data = json.loads(text) if text else None
    except ValueError:
        data = None
    error = None if status == 200 else f"the server answered with status {status}: {text.strip()[:300]}"
    return Answer(status, data, text[:2000], error, seconds)


def health(address, timeout_seconds=5.0):
    """``/health``: 200 when the server is up. Since 0.4.10 this runs a generation of one token."""
    return call(address, "/health", timeout_seconds=timeout_seconds)


def server_info(address, timeout_seconds=10.0):
    """``/server_info`` (0.5.6+), or its old name ``/get_server_info``."""
    answer = call(address, "/server_info", timeout_seconds=timeout_seconds)
    return call(address, "/get_server_info", timeout_seconds=timeout_seconds) if answer.status == 404 else answer


def startup_of_server_info(info):
    """The figures of a start-up that ``/server_info`` knows, in the words of the start-up record.

    :arg info: the parsed body. ``memory_usage`` exists since 0.4.9, ``startup_available`` since 0.5.17; they tell of
        the first rank of each DP group only, the minimum is taken.
    :returns: dictionary with ``state: ready``, ``evidence: server_info``; figures that are not told are None.
        ``dp_ranks`` are in the order in which the ranks answered, which need not be theirs; ``layout`` holds
        ``LAYOUT_ARGUMENTS`` and ``dp_attention``.
    """
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    usages = [state["memory_usage"] for state in states if isinstance(state.get("memory_usage"), dict)]

    def least(name):
        told = [usage[name] for usage in usages if isinstance(usage.get(name), (int, float))]
        return min(told) if told else None

    def whole(name):
        value = info.get(name)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def of_rank(state):
        usage = state["memory_usage"] if isinstance(state.get("memory_usage"), dict) else {}
        figures = {name: _number(usage.get(name)) for name in ("token_capacity", "startup_available")}
        return {"pool_tokens": figures["token_capacity"], "headroom_gib": figures["startup_available"]}

    pools = [pool for pool in (whole("max_total_num_tokens"), least("token_capacity")) if pool]
    return {
        "state": "ready",
        "phase": "ready",
        "evidence": "server_info",
        "pool_tokens": int(min(pools)) if pools else None,
        "weights_gib": least("weight"),
        "kv_gib": least("kvcache"),
        "headroom_gib": least("startup_available"),
        "context_tokens": whole("context_length"),
        "chunked_prefill_size": whole("chunked_prefill_size"),
        "max_running_requests": whole("max_running_requests"),
        "mem_fraction_static": info.get("mem_fraction_static"),
        "engine_version": info.get("version"),
        "ranks": [],
        "phases": [],
        "device": info.get("device") if isinstance(info.get("device"), str) else None,
        "dp_ranks": [of_rank(state) for state in states],
        "layout": dict(
            {name: whole(name) for name in LAYOUT_ARGUMENTS}, dp_attention=info.get("enable_dp_attention") is True
        ),
    }


def _number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def completion(address, prompt, max_tokens=8, timeout_seconds=60.0):
    """One completion, by ``/generate``, or by ``/v1/completions`` where that path does not exist.

    :returns: ``(Answer, text)``; the text is None when no text came, whatever the status says.
    """
    payload = {"text": prompt, "sampling_params": {"max_new_tokens": max_tokens, "temperature": 0}}
    answer = call(address, "/generate", payload, timeout_seconds)
    if answer.status == 404:
        payload = {"model": model_name(address), "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        answer = call(address, "/v1/completions", payload, timeout_seconds)
    return answer, text_of(answer.data) if answer.good else None


def model_name(address):
    """The first model that ``/v1/models`` lists, or ``default``."""
    data = call(address, "/v1/models").data
    try:
        return str(data["data"][0]["id"])
    except (TypeError, KeyError, IndexError):
        return "default"


def context_tokens(address):
    """The longest request that the server takes, from ``/v1/models``, or None."""
    data = call(address, "/v1/models").data
    try:
        return int(data["data"][0]["max_model_len"])
    except (TypeError, KeyError, IndexError, ValueError):
        return None


def text_of(data):
    """The text of a completion in either form of answer, or None."""
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("text"), str):
        return data["text"]
    choices = data.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        text = choices[0].get("text")
        return text if isinstance(text, str) else None
    return None


# ---------------------------------------------------------------------------------------------------------------
# Whose process listens


def listening_inodes(table, port, host=None):
    """Inodes of the sockets that listen on a port, from the text of ``/proc/net/tcp`` or ``tcp6``.

    With a numeric ``host`` only sockets that a connection to it can reach count: that address, or an any-address.
    """
    inodes = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        raw_address, dummy, raw_port = fields[1].partition(":")
        if int(raw_port, 16) == port and _reaches(raw_address, host):
            inodes.append(fields[9])
    return inodes


def _reaches(raw_address, host):
    try:
        wanted = ipaddress.ip_address((host or "").strip("[]"))
    except ValueError:
        return True
    # The kernel prints each 32-bit word in the host's byte order (little-endian on all platforms of SGLang).
    words = [bytes.fromhex(raw_address[start : start + 8])[::-1] for start in range(0, len(raw_address), 8)]
    bound = ipaddress.ip_address(b"".join(words))
    mapped = getattr(bound, "ipv4_mapped", None)
    return wanted.is_unspecified or bound.is_unspecified or wanted in (bound, mapped)


def port_owners(port, proc_root="/proc", host=None):
    """The processes that hold a socket which listens on ``port``, lowest number first.

    An empty list: nothing listens, or the processes of others cannot be read (needs root).
    """
    inodes = _inodes(port, proc_root, host)
    if not inodes:
        return []
    wanted = {f"socket:[{inode}]" for inode in inodes}
    pids = sorted(int(name) for name in os.listdir(proc_root) if name.isdigit())
    return [pid for pid in pids if wanted.intersection(_open_files(pid, proc_root))]


def _inodes(port, proc_root, host):
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(os.path.join(proc_root, "net", name), encoding="ascii", errors="replace") as stream:
                inodes.update(listening_inodes(stream.read(), port, host))
        except OSError:
            continue
    return inodes


def port_is_open(port, proc_root="/proc", host=None):
    """Whether anything listens on the port, whoever it is."""
    return bool(_inodes(port, proc_root, host))


def _open_files(pid, proc_root) -> list[str]:
    folder = os.path.join(proc_root, str(pid), "fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    links = []
    for name in names:
        try:
            links.append(os.readlink(os.path.join(folder, name)))
        except OSError:
            # Closed between the two calls.
            continue
    return links


def port_owner(port, proc_root="/proc", host=None):
    """The process that listens on ``port``, or None."""
    owners = port_owners(port, proc_root, host)
    return owners[0] if owners else None


def parent_of(pid, proc_root="/proc"):
    """The parent of a process from ``/proc/PID/stat``, or None when it is gone."""
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            # The name in parentheses may itself hold spaces and parentheses.
            return int(stream.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def descends_from(pid, main_pid, proc_root="/proc"):
    """Whether a process is ``main_pid`` or a descendant of it."""
    seen = set()
    while pid and pid > 1 and pid not in seen:
        if pid == main_pid:
            return True
        seen.add(pid)
        pid = parent_of(pid, proc_root)
    return False


def process_exists(pid, proc_root="/proc"):
    """Whether a process exists and is no zombie. The cheapest question that tells a death."""
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
