# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its requests. Streams one prompt to ``/generate`` and tells what became of it.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak, _soak_judge


class Client:
    """Streams requests to ``/generate``.

    :arg session: a ``requests.Session``. :arg errors: the exceptions of that library (``requests.RequestException``).
    :arg vocab_size: of the model, or None: prompts are then random words, measured by the first answer.
    """

    def __init__(self, session, errors, address, seed, vocab_size=None):
        self._session = session
        self._errors = errors
        self._url = address.base_url + "/generate"
        self._headers = {"Authorization": "Bearer " + address.api_key} if address.api_key else {}
        self._seed = seed
        self._vocab_size = vocab_size
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

    def send(self, number, phase, tokens, answer_tokens, clock, deadline):
        """One request; returns its :class:`_soak_judge.Outcome`. ``clock()`` gives seconds since the soak began."""
        body = self.payload(number, tokens, answer_tokens)
        seen = {"number": number, "phase": phase, "wanted_tokens": tokens, "began": clock()}
        try:
            self._stream(body, seen, clock, deadline)
        except self._errors as error:
            # A read that times out because the soak is over is not the server's fault.
            seen["status"] = "cut" if clock() >= deadline - 0.05 else "failed"
            seen["error"] = str(error)[:300]
        except ValueError as error:
            seen["status"], seen["error"] = "failed", f"no JSON in the stream: {error}"
        seen["ended"] = clock()
        if seen["status"] == "answered" and not self._vocab_size:
            self._tokens_per_word = max(seen["prompt_tokens"], 1) / float(len(body["text"].split()))
        return _soak_judge.Outcome(**seen)

    def _stream(self, body, seen, clock, deadline):
        timeout = (5.0, max(deadline - clock(), 0.1))
        with self._session.post(self._url, json=body, headers=self._headers, stream=True, timeout=timeout) as response:
            if response.status_code != 200:
                seen["status"] = "refused" if 400 <= response.status_code < 500 else "failed"
                seen["error"] = f"status {response.status_code}: {response.text.strip()[:300]}"
                return
            seen["status"], seen["error"] = "failed", "the stream ended before its end"
            for line in response.iter_lines(chunk_size=None):
                if clock() >= deadline:
                    seen["status"], seen["error"] = "cut", None
                    return
                if line.startswith(b"data:") and self._event(line[5:].strip(), seen, clock):
                    return

    @staticmethod
    def _event(data, seen, clock):
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
        meta = event.get("meta_info") or {}
        seen.setdefault("first_token_at", clock())
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
