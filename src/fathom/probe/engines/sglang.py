"""Hooks of SGLang's scheduler, in its process, with and without overlapped scheduling.

An iteration is from the choice of a batch to the processing of its result. A request arrives when the
scheduler takes it, between iterations, and ends with its last token: HTTP and the tokenizer are in another
process (`sglang_frontend.py`).
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.scheduled import Scheduled, Turn
from fathom.probe.engines.serving import DECODE, PART, PREFILL, RECOMPUTE, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around, before

TESTED = "sglang 0.5.23"
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the scheduler."""
    calls = Calls(serving)
    hooks = {
        "Scheduler._add_request_to_queue": before(calls.added),
        "Scheduler.get_next_batch_to_run": before(calls.choosing),
        "Scheduler.run_batch": before(calls.chosen),
        "Scheduler.process_batch_result": around(calls.process),
        "Scheduler.on_idle": before(calls.idle),
    }
    hook(serving, patches, "sglang.srt.managers.scheduler", TESTED, hooks)


class Calls:
    """Follows the requests of one scheduler."""

    def __init__(self, serving: Serving) -> None:
        self.serving, self.batches = serving, Scheduled(serving)
        self._start = 0

    @guarded(PART)
    def added(self, _: Any, req: Any, is_retracted: bool = False) -> None:
        """Note a request that enters the queue, first or after it lost its place in the cache."""
        if is_retracted:
            at = now()
            self.serving.span(self.serving.of(req.rid), "preempt", at, at, least=0)
        else:
            self.serving.submitted(req.rid, req.origin_input_ids)

    @guarded(PART)
    def choosing(self, *_: Any, **__: Any) -> None:
        """Note when the choice of a batch begins."""
        self._start = now()

    @guarded(PART)
    def chosen(self, scheduler: Any, batch: Any, *_: Any, **__: Any) -> None:
        """Note a batch that is about to run."""
        mode = batch.forward_mode
        if not (mode.is_decode() or mode.is_extend()):
            return
        lengths = [_read(scheduler, batch)] * len(batch.reqs) if mode.is_decode() else batch.extend_lens
        decoding = batch.reqs if mode.is_decode() else batch.decoding_reqs or ()
        names = {req.rid for req in decoding}
        turns = [
            turn
            for req, length in zip(batch.reqs, lengths, strict=True)
            if (turn := self._turn(req, length, req.rid in names))
        ]
        total = scheduler.max_total_num_tokens
        used = total - scheduler.token_to_kv_pool_allocator.available_size()
        self.batches.begin(self._start or now(), turns, len(scheduler.waiting_queue), used, total)

    def _turn(self, req: Any, tokens: int, decodes: bool) -> Turn | None:
        request = self.serving.of(req.rid)
        if request is None:
            return None
        request.cached = max(request.cached, req.cached_tokens)
        phase = DECODE if decodes else RECOMPUTE if req.retraction_count else PREFILL
        return request, phase, int(tokens), 0

    def process(self, original: Any, scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """End an iteration once its requests have their tokens."""
        followed = self._computed(batch)
        result = original(scheduler, batch, *args, **kwargs)
        if followed:
            self._processed(batch)
        return result

    @guarded(PART)
    def _computed(self, batch: Any) -> bool:
        followed = batch.forward_mode.is_decode() or batch.forward_mode.is_extend()
        if followed:
            self.batches.computed()
        return bool(followed)

    @guarded(PART)
    def _processed(self, batch: Any) -> None:
        known = {req.rid: req for req in batch.reqs}
        self.batches.end(known, lambda own: len(own.output_ids), lambda own: bool(own.finished()))

    @guarded(PART)
    def idle(self, *_: Any, **__: Any) -> None:
        """Note that there is nothing to do."""
        self.serving.idle()


def _read(scheduler: Any, batch: Any) -> int:
    """Return the tokens that a decode reads for a request: several, if it verifies drafts."""
    algorithm = getattr(batch, "spec_algorithm", None)
    if algorithm is None or algorithm.is_none():
        return 1
    return int(getattr(scheduler.server_args, "speculative_num_draft_tokens", None) or 1)
