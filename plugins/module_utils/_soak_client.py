# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its requests. Streams one prompt to ``/generate`` and tells what became of it.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak, _soak_judge

# Which field of ``/generate`` names the DP rank, by the first version that has it, youngest first. Fields that a
# version does not know are ignored. Pull requests 19268 and 6884 of sgl-project/sglang.
DP_RANK_FIELDS = (((0, 5, 10), "routed_dp_rank"), ((0, 4, 8), "data_parallel_rank"))


def dp_rank_field(version):
    """The field that names the DP rank in this version of SGLang, or None: the server then takes its ranks in turn."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:3])
    return next((field for first, field in DP_RANK_FIELDS if numbers >= first), None)


def image_url(path):
    """A picture of the host as a URL that holds it. Raises OSError."""
    with open(path, "rb") as stream:
        text = base64.b64encode(stream.read()).decode("ascii")
    return "data:%s;base64,%s" % (mimetypes.guess_type(path)[0] or "image/png", text)


class Client:
    """Streams requests to ``/generate``.

    :arg session: a ``requests.Session``. :arg errors: the exceptions of that library (``requests.RequestException``).
    :arg vocab_size: of the model, or None: prompts are then random words, measured by the first answer.
    :arg dp_field: of :func:`dp_rank_field`; None: requests name no DP rank. :arg image: URL of a picture, or None.
    """

    def __init__(self, session, errors, address, seed, vocab_size=None, dp_field=None, image=None):
        self._session = session
        self._errors = errors
        self._base = address.base_url
        # SGLang's HTTP server ends a connection that was idle for five seconds, maybe when the next request is sent.
        self._headers = {"Connection": "close"}
        if address.api_key:
            self._headers["Authorization"] = "Bearer " + address.api_key
        self._seed = seed
        self._vocab_size = vocab_size
        self._dp_field = dp_field
        self._image = image
        self._tokens_per_word = None
        # The environment's proxies and netrc: the load is for this host's server.
        session.trust_env = False

    def payload(self, number, tokens, answer_tokens):
        body = {
            "sampling_params": {"max_new_tokens": answer_tokens, "temperature": 0, "ignore_eos": True},
            "stream": True,
        }
        if self._vocab_size:
            body["input_ids"] = _soak.prompt_ids(self._seed, number, tokens, self._vocab_size)
        else:
            # Before the first answer: surely short enough, four tokens a word.
            words = _soak.words_for(tokens, self._tokens_per_word or 4.0)
            body["text"] = _soak.prompt_text(self._seed, number, words)
        return body

    def send(self, ask, clock, deadline, on_first=None):
        """One request; returns its :class:`_soak_judge.Outcome`.

        :arg ask: :class:`_soak.Ask`. :arg clock: seconds since the soak began.
        :arg on_first: called once, when the first token has come.
        """
        seen = {"number": ask.number, "phase": ask.phase, "wanted_tokens": ask.tokens, "began": clock()}
        seen["dp_rank"] = ask.dp_rank
        told = {"on_first": on_first}
        path, body = self._request(ask)
        try:
            self._stream(path, body, seen, clock, deadline, told)
        except self._errors as error:
            # A read that times out because the soak is over is not the server's fault.
            seen["status"] = "cut" if clock() >= deadline - 0.05 else "failed"
            seen["error"] = str(error)[:300]
        except ValueError as error:
            seen["status"], seen["error"] = "failed", f"no JSON in the stream: {error}"
        seen["ended"] = clock()
        if seen["status"] == "answered" and "text" in body:
            self._tokens_per_word = max(seen["prompt_tokens"], 1) / float(len(body["text"].split()))
        return _soak_judge.Outcome(**seen)

    def _request(self, ask):
        """Path and body of a request."""
        if ask.phase != "image":
            body = self.payload(ask.number, ask.tokens, ask.answer_tokens)
            if self._dp_field and ask.dp_rank is not None:
                body[self._dp_field] = ask.dp_rank
            return "/generate", body
        words = _soak.prompt_text(self._seed, ask.number, 8)
        content = [{"type": "image_url", "image_url": {"url": self._image}}, {"type": "text", "text": words}]
        body = {"model": "default", "messages": [{"role": "user", "content": content}]}
        body.update(max_tokens=ask.answer_tokens, stream=True, stream_options={"include_usage": True})
        return "/v1/chat/completions", body

    def _stream(self, path, body, seen, clock, deadline, told):
        timeout = (5.0, max(deadline - clock(), 0.1))
        url = self._base + path
        with self._session.post(url, json=body, headers=self._headers, stream=True, timeout=timeout) as response:
            if response.status_code != 200:
                seen["status"] = "refused" if 400 <= response.status_code < 500 else "failed"
                seen["error"] = f"status {response.status_code}: {response.text.strip()[:300]}"
                return
            seen["status"], seen["error"] = "failed", "the stream ended before its end"
            for line in response.iter_lines(chunk_size=None):
                if clock() >= deadline:
                    seen["status"], seen["error"] = "cut", None
                    return
                if line.startswith(b"data:") and self._event(line[5:].strip(), seen, clock, told):
                    return

    @staticmethod
    def _event(data, seen, clock, told):
        """One server-sent event. True when it is the last one."""
        if data == b"[DONE]":
            return True
        event = json.loads(data.decode("utf-8", "replace"))
        if event.get("error"):
            error = event["error"] if isinstance(event["error"], dict) else {"message": event["error"]}
            code = error.get("code")
            seen["status"] = "refused" if isinstance(code, int) and 400 <= code < 500 else "failed"
            seen["error"] = str(error.get("message", error))[:300]
            return True
        meta = event.get("meta_info") or _meta_of_chat(event)
        seen.setdefault("first_token_at", clock())
        on_first = told.pop("on_first", None)
        if on_first:
            on_first()
        seen["prompt_tokens"] = int(meta.get("prompt_tokens") or seen.get("prompt_tokens", 0))
        seen["cached_tokens"] = int(meta.get("cached_tokens") or 0)
        seen["answer_tokens"] = int(meta.get("completion_tokens") or seen.get("answer_tokens", 0))
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            bad_request = str(reason.get("err_type", "")).startswith("BadRequest")
            seen["status"], seen["error"] = "refused" if bad_request else "failed", str(reason.get("message"))[:300]
            return True
        if reason:
            seen["status"], seen["error"] = "answered", None
        return False


def _meta_of_chat(event):
    """What an event of ``/v1/chat/completions`` tells, in the words of ``/generate``."""
    usage = event.get("usage") or {}
    choices = event.get("choices") or [{}]
    reason = choices[0].get("finish_reason")
    return {**usage, "finish_reason": {"type": reason} if reason else None}
