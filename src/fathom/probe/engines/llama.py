"""Hooks of llama-cpp-python, alone and in its server, which serves one request after the other.

An iteration is one evaluation of tokens and the sampling of the next one.
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import DECODE, PART, PREFILL, Request, Serving
from fathom.probe.engines.transformers import timed
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around

TESTED = "llama-cpp-python 0.3.36"
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the model's calls."""
    calls = Calls(serving)
    hooks = {
        "Llama.tokenize": timed(serving, "tokenise"),
        "Llama.detokenize": timed(serving, "detokenise"),
        "Llama.generate": around(calls.generate),
        "Llama.eval": around(calls.evaluate),
        "Llama.sample": around(calls.sample),
    }
    hook(serving, patches, "llama_cpp.llama", TESTED, hooks)


class Calls:
    """Follows the one request that a model works on."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.request: Request | None = None
        self._prompted = False

    def generate(self, original: Any, model: Any, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        """Follow a generation from its prompt to its last token."""
        self._submitted(tokens)
        try:
            yield from original(model, tokens, *args, **kwargs)
        finally:
            self._finished()

    @guarded(PART)
    def _submitted(self, tokens: Any) -> None:
        self.request = self.serving.submitted(id(self), tokens)
        self._prompted = False

    @guarded(PART)
    def _finished(self) -> None:
        request, self.request = self.request, None
        if request is not None:
            self.serving.finished(request)
        self.serving.idle()

    def evaluate(self, original: Any, model: Any, tokens: Any) -> Any:
        """Time the evaluation of tokens."""
        self._began(len(tokens))
        result = original(model, tokens)
        self._evaluated(model)
        return result

    @guarded(PART)
    def _began(self, count: int) -> None:
        if self.request is None:
            return
        if not self._prompted:
            self.request.cached = max(self.request.prompt - count, 0)
        batch = self.serving.begin(now())
        batch.turns.append((self.request, DECODE if self._prompted else PREFILL, count, 1))
        self._prompted = True

    @guarded(PART)
    def _evaluated(self, model: Any) -> None:
        batch = self.serving.batch
        if batch is not None:
            batch.prepared, batch.computed = batch.start, now()
            batch.kv_used, batch.kv_total = int(model.n_tokens), int(model.n_ctx())

    def sample(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the sampling of a token, which ends the iteration."""
        result = original(*args, **kwargs)
        self._sampled()
        return result

    @guarded(PART)
    def _sampled(self) -> None:
        if self.serving.batch is not None:
            self.serving.batch.sampled = now()
            self.serving.generated()
            self.serving.iterated()
