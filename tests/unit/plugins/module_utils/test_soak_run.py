from __future__ import annotations

import http.server
import json
import threading
import time
import types

import pytest

requests = pytest.importorskip("requests")

from ansible_collections.gpufleet.sglang.plugins.module_utils import (  # noqa: E402
    _http,
    _soak,
    _soak_client,
    _soak_job,
    _soak_judge,
    _soak_run,
    _soak_seen,
)

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
        self.bodies = []
        self.paths = []
        self.keys = []

    @property
    def address(self):
        return _http.Address("127.0.0.1", self.server_address[1], "k")


class Stream(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        engine = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine.bodies.append(body)
        engine.paths.append(self.path)
        if self.path == "/flush_cache":
            engine.keys.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"Cache flushed.")
            return
        if self.path == "/v1/chat/completions":
            self.send_response(200)
            self.end_headers()
            self._event({"choices": [{"delta": {"content": "A"}, "finish_reason": None}]})
            self._event({"choices": [{"delta": {}, "finish_reason": "length"}]})
            self._event({"choices": [], "usage": {"prompt_tokens": 1030, "completion_tokens": 4}})
            self.wfile.write(b"data: [DONE]\n\n")
            return
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
    job = _soak_job.Job(engine.address, None, limits, dict(ADDRESS_OPTIONS, **options))
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
    names = [phase["name"] for phase in result["phases"]]
    assert names == ["probe", "fill", "ladder", "context", "decode", "wave", "crowd"]
    assert all(phase["requests"] == phase["planned"] for phase in result["phases"])
    # Seven prompts of an eighth of the pool fill it, and one of what is left.
    assert (result["phases"][1]["requests"], result["filled_share"], result["clients"]) == (8, 1.0, None)
    assert result["dp_ranks"] == [0]
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
    # What has to be proven takes three seconds, and the fill four.
    result = soak(engine(seconds_per_token=0.002), seconds=6.0)
    assert (result["verdict"], result["bound"]) == ("proven", None)
    assert "so the cache was filled to" in result["reason"]
    assert "left no room for all of: fill" in result["reason"]
    assert result["filled_share"] < 0.5


def test_what_is_not_sent_is_not_proven(engine):
    # The near-context prompt takes two seconds, and as many users as are promised another two.
    result = soak(engine(seconds_per_token=0.004), seconds=3.2)
    assert (result["verdict"], result["failure"]["kind"], result["bound"]) == ("failed", "no_evidence", "seconds")
    assert result["reason"] == (
        "Not all requests of wave, crowd were answered: the bound of 3.2 seconds was reached first."
    )


def test_a_bound_that_is_surely_too_short_says_so_at_once(engine):
    began = time.monotonic()
    result = soak(engine(seconds_per_token=0.01), seconds=6.0, context_tokens=20000, pool_tokens=20000)
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert "seconds" in result["reason"]
    assert time.monotonic() - began < 5.0


def test_the_bound_in_requests(engine):
    result = soak(engine(), requests=1)
    assert (result["verdict"], result["bound"], result["phases"][3]["answered"]) == ("failed", "requests", 1)
    assert "wave, crowd were answered: the bound of 1 requests was reached first" in result["reason"]


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
    watch.main_pid = None
    watch.retractions_or_none = 2
    watch.dp_ranks_or_none = set()
    return watch


def test_a_death_comes_with_its_cause_and_its_request(engine):
    made = engine(die_at=400)
    failure = {"kind": "oom_prefill", "direction": "lower", "evidence": "CUDA out of memory", "fatal": True}
    result = soak(made, watch=dying_watch(made, failure))
    assert (result["verdict"], result["failure"]["kind"], result["retractions"]) == ("unsafe", "oom_prefill", 2)
    assert result["failure"]["request"] == {"number": 2, "phase": "fill", "prompt_tokens": 500, "concurrency": 2}


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
    job = _soak_job.Job(engine().address, None, _soak.Limits(20.0, 64), options, http=answers)
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
    text = _soak_job.failing_sentence(result, {"unit": "u.service", "port": 1})
    assert text.startswith("u.service was expected to survive")
    assert ("Do this." in text) is bool(failure)


# --- DP ranks, pictures, keys


def info(**more):
    """A server that tells of itself, as version 0.5.23 with two DP ranks does."""
    told = {"max_total_num_tokens": 4000, "dp_size": 2, "version": "0.5.23", "chunked_prefill_size": 128, **more}
    return types.SimpleNamespace(
        server_info=lambda address: _http.Answer(200, told),
        startup_of_server_info=_http.startup_of_server_info,
        call=_http.call,
    )


def asked(engine, http, **options):
    limits = _soak.Limits(20.0, 512, answer_tokens=8, concurrency=3)
    job = _soak_job.Job(engine.address, None, limits, dict(ADDRESS_OPTIONS, **options), http=http)
    with requests.Session() as session:
        result = job.run(session, requests.RequestException)
    json.dumps(result)
    return result


def test_every_dp_rank_is_named_and_reached(engine):
    made = engine()
    result = asked(made, info())
    assert (result["verdict"], result["dp_ranks"]) == ("proven", [0, 1])
    near = [body["routed_dp_rank"] for body in made.bodies if len(body["input_ids"]) >= 0.9 * 512]
    assert near.count(0) == near.count(1) > 1
    assert {len(body["input_ids"]) for body in made.bodies} >= {127, 128, 129}


def test_a_version_that_cannot_be_told_a_rank_is_believed_by_its_journal_only(engine):
    made = engine()
    result = asked(made, info(version="0.4.3"))
    assert (result["verdict"], result["dp_ranks"]) == ("proven", None)
    assert not any("rank" in name for body in made.bodies for name in body)


@pytest.mark.parametrize(
    ("by_journal", "field", "reached"),
    [({1}, None, [1]), (set(), None, None), (None, None, None), (None, "routed_dp_rank", [0]), ({0, 1}, "x", [0, 1])],
)
def test_reached_ranks(by_journal, field, reached):
    outcomes = [
        _soak_judge.Outcome(0, "fill", 9, "answered", dp_rank=0),
        _soak_judge.Outcome(1, "fill", 9, "cut", dp_rank=1),
    ]
    assert _soak_job.reached_ranks(outcomes, 2, field, by_journal) == reached


@pytest.mark.parametrize(
    ("version", "field"),
    [
        ("0.5.23", "routed_dp_rank"),
        ("0.5.10rc0", "routed_dp_rank"),
        ("0.5.9", "data_parallel_rank"),
        ("0.4.8.post1", "data_parallel_rank"),
        ("0.4.6", None),
        (None, None),
        ("unknown", None),
    ],
)
def test_the_field_of_the_dp_rank(version, field):
    assert _soak_client.dp_rank_field(version) == field


def test_one_request_has_a_picture(engine, tmp_path):
    made = engine()
    (tmp_path / "sample.jpg").write_bytes(b"abc")
    result = soak(made, image_file=str(tmp_path / "sample.jpg"))
    (body,) = [body for body in made.bodies if "messages" in body]
    assert body["messages"][0]["content"][0]["image_url"]["url"] == "data:image/jpeg;base64,YWJj"
    assert result["verdict"] == "proven"
    assert (result["phases"][-1]["name"], result["phases"][-1]["prompt_tokens"]) == ("image", 1030)


def test_a_picture_that_is_not_there_is_one_sentence(engine):
    made = engine()
    result = soak(made, image_file="/does/not/exist.png")
    assert (result["verdict"], made.bodies) == ("failed", [])
    assert "image_file /does/not/exist.png" in result["reason"]


@pytest.mark.parametrize(("admin", "key"), [("a", "Bearer a"), (None, "Bearer k")])
def test_the_cache_is_flushed_with_the_admin_key(engine, admin, key):
    made = engine()
    assert soak(made, flush=True, admin_api_key=admin)["verdict"] == "proven"
    assert (made.paths[0], made.keys[0], made.keys[1]) == ("/flush_cache", key, "Bearer k")
    assert "/flush_cache" not in made.paths[1:]


def test_served_of():
    states = [{"effective_max_running_requests_per_dp": 9}, {"effective_max_running_requests_per_dp": 8}]
    told = {"chunked_prefill_size": 4096, "max_running_requests": 48}
    options = {"device": "cuda", "image_file": None}
    served = _soak_job.served_of({"dp_size": 2, "internal_states": states}, told, 2048, 9000, options)
    assert served == _soak.Served(2048, 9000, 4096, 8, 2)
    # Older versions: a number for all ranks, and as many states as ranks.
    assert _soak_job.served_of({"internal_states": [{}, {}]}, told, 2048, 9000, options).running == 24
    assert _soak_job.served_of({}, {}, 2048, 9000, options) == _soak.Served(2048, 9000)


# --- the order of requests, without a server


class Loop:
    """Answers at once, and keeps what was sent while others ran. ``keeps``: MiB that a request never gives back."""

    def __init__(self, keeps=0.0, first_after=0.0):
        self.sent = []
        self.open = {}
        self.free = 4.0
        self.keeps = keeps
        self.first_after = first_after
        self.lock = threading.Lock()

    def send(self, ask, clock, deadline, on_first):
        began = clock()
        with self.lock:
            self.sent.append((ask, {number for number, decodes in self.open.items() if decodes}))
            self.open[ask.number] = False
        time.sleep(self.first_after)
        with self.lock:
            self.open[ask.number] = True
        on_first()
        first = clock()
        # Whoever decodes goes on until the long ones have come.
        time.sleep(0.05 if ask.phase == "wave" else 0.0)
        with self.lock:
            del self.open[ask.number]
            self.free -= self.keeps / 1024
        return _soak_judge.Outcome(
            ask.number, ask.phase, ask.tokens, "answered", ask.tokens, 0, ask.answer_tokens, began, first, clock()
        )

    def run(self, phases, limits=None):
        made = _soak_run.Soak(phases, limits or _soak.Limits(20.0), self.send, lambda: {"0": self.free})
        made.run()
        return made


def test_the_long_prompt_meets_a_batch_that_decodes():
    loop = Loop(first_after=0.01)
    loop.run((_soak.Phase("wave", (9,) * 7 + (900,), 8, 4, late=1),))
    (met,) = [met for ask, met in loop.sent if ask.tokens == 900]
    assert len(met) == 7


def test_slow_growth_is_measured():
    loop = Loop(keeps=1.0)
    made = loop.run((_soak.Phase("steady", (9,) * 48, 1, 1),))
    growth = _soak_seen.growth_of(made.marks, made.samples)
    assert growth.mib_per_request == pytest.approx(1.0)
    assert made.marks[0] == (0, {"0": 4.0})


def test_without_a_bound_the_speed_of_the_probe_gives_one():
    loop = Loop(first_after=0.05)
    made = loop.run(
        (_soak.Phase("probe", (100,), 1, 1), _soak.Phase("context", (100000,), 1, 1, must=True)), _soak.Limits()
    )
    # At most 2,000 tokens a second: 50 s and more, half as much again.
    assert 75.0 < made.limits.seconds < 200.0


def test_what_has_no_time_is_left_out_for_what_must_be_done():
    loop = Loop(first_after=0.1)
    phases = (
        _soak.Phase("probe", (1000,), 1, 1),
        _soak.Phase("fill", (1000,) * 50, 1, 1, 0.5),
        _soak.Phase("context", (1000,), 1, 1, must=True, kept=True),
    )
    made = loop.run(phases, _soak.Limits(2.0))
    done = [ask.phase for ask, dummy in loop.sent]
    assert (done[-1], made.bound) == ("context", None)
    assert 2 <= done.count("fill") <= 10


@pytest.mark.parametrize(
    ("limits", "fills"),
    [(_soak.Limits(60.0, prompt_tokens=4000), 2), (_soak.Limits(60.0, requests=6), 4), (_soak.Limits(60.0), 50)],
)
def test_what_is_bounded_otherwise_leaves_out_the_fill_too(limits, fills):
    loop = Loop(first_after=0.001)
    phases = (
        _soak.Phase("probe", (1000,), 1, 1),
        _soak.Phase("fill", (1000,) * 50, 1, 1),
        _soak.Phase("context", (1000,), 1, 1, must=True, kept=True),
    )
    made = loop.run(phases, limits)
    done = [ask.phase for ask, dummy in loop.sent]
    assert (done.count("fill"), done[-1], made.bound) == (fills, "context", None)


# --- beside the load: how far it is, and whether it looks healthy


def test_a_long_load_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr(_soak_run, "TELL_SECONDS", 0.02)
    told = []
    loop = Loop(first_after=0.05)
    phases = (_soak.Phase("fill", (500,) * 6, 1, 1), _soak.Phase("context", (3000,), 1, 1, must=True))
    made = _soak_run.Soak(
        phases, _soak.Limits(20.0), loop.send, lambda: {"3": 2.13}, tell=lambda *words: told.append(words)
    )
    made.run()
    assert told[0] == ("fill", "0 % of 3,000 tokens, least free 2.1 GiB on board 3")
    assert ("fill", "50 % of 3,000 tokens, least free 2.1 GiB on board 3") in told
    assert told[-1] == ("context", "0 of 1 requests up to 3,000 tokens, least free 2.1 GiB on board 3")


def test_a_full_disk_does_not_end_a_load(monkeypatch):
    monkeypatch.setattr(_soak_run, "TELL_SECONDS", 0.01)
    tries = []

    def tell(*words):
        tries.append(words)
        raise OSError("No space left on device")

    made = _soak_run.Soak(
        (_soak.Phase("fill", (5,) * 6, 1, 1),), _soak.Limits(20.0), Loop(first_after=0.02).send, dict, tell=tell
    )
    made.run()
    assert (len(tries), [one.status for one in made.outcomes]) == (1, ["answered"] * 6)


def test_the_note_of_the_host_is_gone_when_the_load_is_over(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(_soak_run, "TELL_SECONDS", 0.01)
    path, seen = tmp_path / "n.progress", []
    monkeypatch.setattr(_soak_job._note.Note, "say", lambda note, *words: seen.append(note.path))
    path.write_text("of a load that was killed")
    assert soak(engine(seconds_per_token=0.0002), progress_file=str(path))["verdict"] == "proven"
    assert seen[0] == str(path)
    assert not path.exists()


def test_the_lease_is_kept_while_the_load_goes_on_and_no_longer(engine, monkeypatch):
    monkeypatch.setattr(_soak_run, "KEEP_SECONDS", 0.02)
    kept = []

    def renew(lease):
        kept.append(lease)
        if len(kept) == 1:
            raise OSError("No space left on device")

    monkeypatch.setattr(_soak_job._proof, "renew_lease", renew)
    lease = {"instance": "main", "run_id": "a"}
    soak(engine(seconds_per_token=0.0002), lease=lease)
    assert len(kept) > 3
    assert kept[0] == lease
    count = len(kept)
    time.sleep(0.1)
    assert len(kept) == count


def test_health_is_asked_and_does_not_change_the_verdict(monkeypatch):
    monkeypatch.setattr(_soak_run, "HEALTH_SECONDS", 0.02)
    answers = [True, False, True]
    made = _soak_run.Soak(
        (_soak.Phase("fill", (5,) * 6, 1, 1),),
        _soak.Limits(20.0),
        Loop(first_after=0.05).send,
        dict,
        ask_health=lambda: answers.pop(0) if answers else True,
    )
    made.run()
    assert made.health.refused == 1
    assert made.health.asked >= 3
    assert made.failure is None
    assert "raise SGLANG_HEALTH_CHECK_TIMEOUT" in made.health.sentence()


def test_a_server_that_is_not_healthy_meanwhile_is_proven_and_that_is_said(engine, monkeypatch):
    """This one has no ``/health``: it answers 501."""
    monkeypatch.setattr(_soak_run, "HEALTH_SECONDS", 0.02)
    result = soak(engine(seconds_per_token=0.0002))
    assert result["verdict"] == "proven"
    assert result["health"]["asked"] == result["health"]["refused"] > 0
    assert "looks at /health" in result["reason"]
