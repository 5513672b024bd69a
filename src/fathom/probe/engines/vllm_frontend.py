"""Hooks of vLLM's frontend, in the process of its HTTP server: text to tokens, to the engine, and back.

The engine is in another process, which knows the request by the same key. Its requests are joined with those
of HTTP when the recording is imported.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import PART, Request, Serving
from fathom.probe.engines.vllm import TESTED
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, around, before

now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the renderer of prompts and the processor of the engine's outputs."""
    outputs = Outputs(serving)
    processor = {
        "OutputProcessor.add_request": after(outputs.added),
        "OutputProcessor.process_outputs": before(outputs.arrived),
    }
    detokenizer = {"BaseIncrementalDetokenizer.update": around(outputs.detokenise)}
    renderer = {"BaseRenderer.tokenize_prompt_async": around(tokenised(serving))}
    hook(serving, patches, "vllm.v1.engine.output_processor", TESTED, processor)
    hook(serving, patches, "vllm.v1.engine.detokenizer", TESTED, detokenizer)
    hook(serving, patches, "vllm.renderers.base", TESTED, renderer)


def tokenised(serving: Serving) -> Any:
    """Return a call that times a coroutine as `tokenise` of this context's request, waits included."""

    @guarded(PART)
    def record(start: int) -> None:
        serving.span(serving.here.get(), "tokenise", start, now())

    async def call(original: Any, /, *args: Any, **kwargs: Any) -> Any:
        start = now()
        try:
            return await original(*args, **kwargs)
        finally:
            record(start)

    return call


class Outputs:
    """Follows requests from their hand-over to the engine to the text of their tokens."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._of: WeakKeyDictionary[Any, Request] = WeakKeyDictionary()  # by detokenizer

    @guarded(PART)
    def added(self, processor: Any, request: Any, *_: Any, **__: Any) -> None:
        """Note that this context's request goes to the engine, once for each answer that it asks for."""
        here = self.serving.handed(request.request_id)
        detokenizer = getattr(processor.request_states.get(request.request_id), "detokenizer", None)
        if here is not None and detokenizer is not None:
            self._of[detokenizer] = here

    @guarded(PART)
    def arrived(self, _: Any, outputs: Any, *__: Any, **___: Any) -> None:
        """Note the first token of requests."""
        for output in outputs:
            request = self.serving.of(output.request_id)
            if request is not None and request.token is None and output.new_token_ids:
                request.token = now()

    def detokenise(self, original: Any, detokenizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the conversion of tokens to text."""
        start = now()
        try:
            return original(detokenizer, *args, **kwargs)
        finally:
            self._detokenised(detokenizer, start)

    @guarded(PART)
    def _detokenised(self, detokenizer: Any, start: int) -> None:
        self.serving.span(self._of.get(detokenizer), "detokenise", start, now())
