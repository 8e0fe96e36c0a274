from __future__ import annotations

import http.server
import json
import threading
import time
import types

import pytest

requests = pytest.importorskip("requests")

from ansible_collections.gpufleet.sglang.plugins.module_utils import _http, _soak, _soak_run  # noqa: E402

ADDRESS_OPTIONS = {
    "context_tokens": 512,
    "pool_tokens": 4000,
    "vocab_size": 1000,
    "profile": "short",
    "unit": None,
    "invocation_id": None,
    "min_least_free_gib": None,
    "device": "cpu",
    "boards": [],
    "nvidia_smi": "nvidia-smi",
    "port": 30000,
}


class Engine(http.server.ThreadingHTTPServer):
    """Answers ``/generate`` as SGLang streams: one event per token. ``die_at``: from this length on it hangs up."""

    daemon_threads = True

    def __init__(self, seconds_per_token=0.0, die_at=None, status=200, limit=None):
        super().__init__(("127.0.0.1", 0), Stream)
        self.seconds_per_token = seconds_per_token
        self.die_at = die_at
        self.status = status
        self.limit = limit
        self.prompts = []
        self.keys = []

    @property
    def address(self):
        return _http.Address("127.0.0.1", self.server_address[1], "k")


class Stream(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        engine = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["input_ids"] if "input_ids" in body else body["text"].split() * 3
        engine.prompts.append(prompt)
        engine.keys.append(self.headers.get("Authorization"))
        if engine.die_at and len(prompt) >= engine.die_at:
            self.connection.close()
            return
        self.send_response(engine.status)
        self.end_headers()
        if engine.status != 200:
            self.wfile.write(b'{"error": "too busy"}')
            return
        if engine.limit and len(prompt) > engine.limit:
            self._event({"error": {"message": "Input length exceeds the maximum allowed length", "code": 400}})
            return
        time.sleep(len(prompt) * engine.seconds_per_token)
        count = body["sampling_params"]["max_new_tokens"]
        for number in range(count):
            self._event(
                {
                    "text": "x" * number,
                    "meta_info": {
                        "prompt_tokens": len(prompt),
                        "completion_tokens": number + 1,
                        "cached_tokens": 0,
                        "finish_reason": {"type": "length", "length": count} if number + 1 == count else None,
                    },
                }
            )
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def engine():
    engines = []

    def start(**changes):
        made = Engine(**changes)
        engines.append(made)
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        return made

    yield start
    for made in engines:
        made.shutdown()
        made.server_close()


def soak(engine, seconds=20.0, watch=None, **options):
    limits = _soak.Limits(seconds=seconds, requests=options.pop("requests", 64), answer_tokens=8, concurrency=3)
    job = _soak_run.Job(engine.address, None, limits, dict(ADDRESS_OPTIONS, **options))
    if watch:
        job._watch = lambda: watch
    with requests.Session() as session:
        result = job.run(session, requests.RequestException)
    json.dumps(result)
    return result


def test_a_good_server_is_proven(engine):
    made = engine()
    result = soak(made)
    assert (result["verdict"], result["failure"], result["bound"]) == ("proven", None, None)
    assert result["longest_prompt_tokens"] >= 0.9 * 512
    assert result["requests"] == result["answered"] == len(made.prompts)
    assert result["least_free_gib"]["cpu"] > 0
    assert result["memory_samples"] >= 1
    assert result["prefill_tokens_per_second"] > 0
    assert [phase["name"] for phase in result["phases"]] == ["probe", "context", "fill", "ladder", "wave"]
    assert set(made.keys) == {"Bearer k"}


def test_no_two_prompts_share_a_prefix(engine):
    made = engine()
    soak(made)
    assert len({tuple(prompt[:3]) for prompt in made.prompts}) == len(made.prompts)


def test_without_a_vocabulary_the_length_is_measured(engine):
    made = engine()
    result = soak(made, vocab_size=None)
    assert result["verdict"] == "proven"
    assert max(len(prompt) for prompt in made.prompts) < 512


def test_a_short_bound_still_proves_the_context(engine):
    # The near-context prompt takes two seconds; the whole plan would take far longer than the bound.
    result = soak(engine(seconds_per_token=0.004), seconds=3.2)
    assert (result["verdict"], result["bound"]) == ("proven", "seconds")
    assert result["seconds"] < 4.0


def test_a_bound_that_is_surely_too_short_says_so_at_once(engine):
    began = time.monotonic()
    result = soak(engine(seconds_per_token=0.01), seconds=6.0, context_tokens=20000, pool_tokens=20000)
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert "seconds" in result["reason"]
    assert time.monotonic() - began < 5.0


def test_the_bound_in_requests(engine):
    result = soak(engine(), requests=1)
    assert (result["verdict"], result["bound"], result["requests"]) == ("failed", "requests", 1)


def test_a_context_that_the_server_refuses(engine):
    result = soak(engine(limit=300))
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert "maximum allowed length" in result["reason"]


@pytest.mark.parametrize(("status", "kind"), [(503, "unknown"), (401, "no_evidence")])
def test_a_server_that_does_not_take_the_load(engine, status, kind):
    result = soak(engine(status=status))
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", kind)
    assert str(status) in result["reason"]


def test_a_broken_connection_without_a_unit(engine):
    result = soak(engine(die_at=400))
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "unknown")


def dying_watch(engine, failure, after=0.3):
    """A watch that tells the death a moment after the engine broke a connection."""
    died = []

    def watch():
        if engine.die_at and any(len(prompt) >= engine.die_at for prompt in engine.prompts):
            died.append(time.monotonic())
            if time.monotonic() - died[0] >= after:
                return failure
        return None

    watch.not_running = lambda: None
    watch.retractions_or_none = 2
    return watch


def test_a_death_comes_with_its_cause_and_its_request(engine):
    made = engine(die_at=400)
    failure = {"kind": "oom_prefill", "direction": "lower", "evidence": "CUDA out of memory", "fatal": True}
    result = soak(made, watch=dying_watch(made, failure))
    assert (result["verdict"], result["failure"]["kind"], result["retractions"]) == ("unsafe", "oom_prefill", 2)
    assert result["failure"]["request"]["phase"] == "context"
    assert result["failure"]["request"]["wanted_tokens"] >= 400


def test_a_unit_that_is_not_running_gets_no_load(engine):
    made = engine()
    watch = dying_watch(made, None)
    watch.not_running = lambda: "Expected u.service to be active, found it failed."
    result = soak(made, watch=watch)
    assert (result["verdict"], made.prompts) == ("failed", [])
    assert "found it failed" in result["reason"]


def test_the_floor_under_load(engine):
    assert soak(engine(), min_least_free_gib=1e6)["verdict"] == "unsafe"


def test_what_is_not_declared_is_asked(engine):
    answers = types.SimpleNamespace(
        server_info=lambda address: _http.Answer(200, {"max_total_num_tokens": 4000}),
        startup_of_server_info=_http.startup_of_server_info,
        context_tokens=lambda address: 512,
    )
    options = dict(ADDRESS_OPTIONS, context_tokens=None, pool_tokens=None)
    job = _soak_run.Job(engine().address, None, _soak.Limits(20.0, 64), options, http=answers)
    with requests.Session() as session:
        result = job.run(session, requests.RequestException)
    assert (result["verdict"], result["pool_tokens"], result["context_tokens"]) == ("proven", 4000, 512)


@pytest.mark.parametrize("context", [None, 512])
def test_a_server_that_tells_nothing_is_not_guessed(engine, context):
    result = soak(engine(), context_tokens=context, pool_tokens=None if context else 4000)
    assert (result["verdict"], result["requests"]) == ("failed", 0)


@pytest.mark.parametrize("failure", [None, {"advice": "Do this."}])
def test_failing_sentence(failure):
    result = {"verdict": "unsafe", "reason": "Why.", "failure": failure}
    text = _soak_run.failing_sentence(result, {"unit": "u.service", "port": 1})
    assert text.startswith("u.service was expected to survive")
    assert ("Do this." in text) is bool(failure)
