"""Hooks of transformers' continuous batching, alone and in `transformers serve`.

An iteration is one turn of the generation loop: prepare a batch, run the model, update the requests. With
asynchronous batching (on a GPU), the batch that is updated is the one prepared a turn earlier.
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import DECODE, PART, PREFILL, RECOMPUTE, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around, before

TESTED = "transformers 5.24"
BATCHING = "transformers.generation.continuous_batching"
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the loop, its scheduler and cache, and the tokenizer."""
    loop = Loop(serving)
    spans = {
        "tokenization_utils_base": {
            "PreTrainedTokenizerBase.apply_chat_template": timed(serving, "tokenise"),
            "PreTrainedTokenizerBase.__call__": timed(serving, "tokenise"),
            "PreTrainedTokenizerBase.decode": timed(serving, "detokenise"),
        },
        "cli.serving.utils": {"CBStreamer.put": around(loop.streamed)},
    }
    engine = {
        "continuous_api": {
            "ContinuousBatchingManager.add_request": before(loop.submitted),
            "ContinuousBatchProcessor.prepare_next_batch": around(loop.prepare),
            "ContinuousBatchProcessor._generation_step": around(loop.compute),
            "ContinuousBatchProcessor.update_batch": around(loop.update),
        },
        "input_outputs": {"ContinuousBatchingIOs.prepare_batch_tensors": before(loop.batched)},
        "cache": {"PagedAttentionCache.search_prefix_match": around(loop.matched)},
        "offloading_manager": {"OffloadingManager.offload_requests": around(loop.offload)},
    }
    for module, hooks in engine.items():
        hook(serving, patches, f"{BATCHING}.{module}", TESTED, hooks)
    for module, hooks in spans.items():
        hook(serving, patches, f"transformers.{module}", TESTED, hooks)


def timed(serving: Serving, what: str) -> Any:
    """Wrap a function to record its calls as spans of the request in whose context it runs."""

    @guarded(PART)
    def record(start: int) -> None:
        serving.span(serving.here.get(), what, start, now())

    def call(original: Any, /, *args: Any, **kwargs: Any) -> Any:
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            record(start)

    return around(call)


class Loop:
    """Hooks that record the requests and batches of the generation loop."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving

    @guarded(PART)
    def submitted(self, manager: Any, input_ids: Any, request_id: Any = None, *_: Any, **__: Any) -> None:
        """Note a request that enters the queue."""
        if request_id is None:  # the engine will name it so
            request_id = f"req_{manager._request_counter}"
        if self.serving.weights is None:
            parameters = manager.model.parameters()
            self.serving.weights = sum(p.numel() * p.element_size() for p in parameters)
        self.serving.submitted(request_id, input_ids)

    def prepare(self, original: Any, processor: Any) -> Any:
        """Time the scheduling of a batch."""
        start = now()
        ready = original(processor)
        self._prepared(processor, start, ready)
        return ready

    @guarded(PART)
    def _prepared(self, processor: Any, start: int, ready: bool) -> None:
        if not ready:
            self.serving.idle()
            return
        states, batch = self._states, self.serving.begin(start)
        batch.prepared = now()
        batch.waiting = len(processor.scheduler.waiting_requests)
        cache = processor.cache
        batch.kv_total, batch.kv_block = cache.num_blocks, _block(cache)
        batch.kv_used = round(cache.num_blocks * (1 - cache.compute_free_capacity()))
        for state, tokens, generates in states:
            request = self.serving.of(state.request_id)
            if request is not None:
                batch.turns.append((request, _phase(state), tokens, int(generates)))

    _states: tuple[tuple[Any, int, bool], ...] = ()

    @guarded(PART)
    def batched(self, _: Any, requests_in_batch: Any, *__: Any, **___: Any) -> None:
        """Keep the requests of the batch that is being prepared."""
        self._states = tuple((f.state, f.query_length, f.has_new_token) for f in requests_in_batch)

    def compute(self, original: Any, *args: Any) -> Any:
        """Time the model: forward pass, sampling, and the copy of the tokens to the host."""
        result = original(*args)
        self._computed()
        return result

    @guarded(PART)
    def _computed(self) -> None:
        if self.serving.batch is not None:
            self.serving.batch.computed = now()
            self.serving.generated()

    def update(self, original: Any, processor: Any) -> Any:
        """End the iteration once the requests have their tokens."""
        result = original(processor)
        self._updated()
        return result

    @guarded(PART)
    def _updated(self) -> None:
        self.serving.iterated()
        for state, _, _ in self._states:
            request = self.serving.of(state.request_id)
            if request is not None and state.status.name in ("FINISHED", "FAILED"):
                self.serving.finished(request)

    def matched(self, original: Any, cache: Any, request_id: Any, prompt_ids: Any) -> Any:
        """Count the tokens of a prompt that the prefix cache holds."""
        tokens = original(cache, request_id, prompt_ids)
        self._matched(request_id, tokens)
        return tokens

    @guarded(PART)
    def _matched(self, request_id: Any, tokens: int) -> None:
        request = self.serving.of(request_id)
        if request is not None:
            request.cached += tokens

    def offload(self, original: Any, manager: Any) -> Any:
        """Note the requests that lose their place in the cache."""
        active = set(manager.scheduler.active_requests)
        start = now()
        result = original(manager)
        self._offloaded(active - set(manager.scheduler.active_requests), start)
        return result

    @guarded(PART)
    def _offloaded(self, keys: set[Any], start: int) -> None:
        for key in keys:
            self.serving.span(self.serving.of(key), "preempt", start, now(), least=0)

    def streamed(self, original: Any, streamer: Any, output: Any) -> Any:
        """Time the conversion of tokens to text for a stream."""
        start = now()
        try:
            return original(streamer, output)
        finally:
            self._streamed(streamer._request_id, start)

    @guarded(PART)
    def _streamed(self, request_id: Any, start: int) -> None:
        self.serving.span(self.serving.of(request_id) or self.serving.here.get(), "detokenise", start, now())


def _block(cache: Any) -> int | None:
    """Return the tokens of a block: since 5.24, each kind of layers has an allocator. None if they differ."""
    allocators = getattr(cache, "cache_allocators", {}).values()
    sizes = {allocator.tokens_per_page for allocator in allocators} or {getattr(cache, "block_size", None)}
    return sizes.pop() if len(sizes) == 1 else None


def _phase(state: Any) -> int:
    """Return the phase of a request in a batch: it decodes once it has generated a token."""
    if state.generated_tokens:
        return DECODE
    return RECOMPUTE if state._true_initial_tokens else PREFILL
