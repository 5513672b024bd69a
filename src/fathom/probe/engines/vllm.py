"""Hooks of vLLM's scheduler (V1), in the process of its engine.

An iteration is from the scheduling of a batch to the update of its requests. A request arrives when the
frontend received it, by vLLM's own note, and ends with its last token: HTTP is in another process
(`vllm_frontend.py`).
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.scheduled import Scheduled, Turn
from fathom.probe.engines.serving import DECODE, PART, PREFILL, RECOMPUTE, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around, before

TESTED = "vllm 0.32"
NS_PER_S = 1_000_000_000
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Watch the scheduler."""
    calls = Calls(serving)
    hooks = {
        "Scheduler.add_request": before(calls.added),
        "Scheduler.schedule": around(calls.schedule),
        "Scheduler._preempt_request": before(calls.preempted),
        "Scheduler.update_from_output": around(calls.update),
        "Scheduler.finish_requests": before(calls.aborted),
    }
    hook(serving, patches, "vllm.v1.core.sched.scheduler", TESTED, hooks)
    core = {"EngineCore.preprocess_add_request": before(calls.received)}
    hook(serving, patches, "vllm.v1.engine.core", TESTED, core)


class Calls:
    """Follows the requests of one scheduler."""

    def __init__(self, serving: Serving) -> None:
        self.serving, self.batches = serving, Scheduled(serving)
        self._received: dict[str, int] = {}

    @guarded(PART)
    def received(self, _: Any, request: Any) -> None:
        """Note when the engine's process has a request; the scheduler takes it after an iteration."""
        self._received[request.request_id] = now()

    @guarded(PART)
    def added(self, scheduler: Any, request: Any) -> None:
        """Note a request that enters the queue; further parts of a streamed input are not new requests."""
        if request.request_id not in scheduler.requests:
            arrival = min(int(request.arrival_time * NS_PER_S), now())
            mine = self.serving.submitted(request.request_id, request.prompt_token_ids or (), arrival)
            mine.submitted = self._received.pop(request.request_id, mine.submitted)

    def schedule(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """Time the scheduling of a batch."""
        start = now()
        output = original(scheduler, *args, **kwargs)
        self._scheduled(scheduler, output, start)
        return output

    @guarded(PART)
    def _scheduled(self, scheduler: Any, output: Any, start: int) -> None:
        if not output.num_scheduled_tokens:
            self.serving.idle()
            return
        turns = [
            turn
            for name, tokens in output.num_scheduled_tokens.items()
            if (turn := self._turn(scheduler, name, tokens))
        ]
        total = max(scheduler.kv_cache_config.num_blocks - 1, 1)  # one holds no tokens
        used = round(total * scheduler.get_kv_cache_usage())
        block = getattr(scheduler, "block_size", None)
        self.batches.begin(start, turns, scheduler.get_request_counts()[1], used, total, block)

    def _turn(self, scheduler: Any, name: str, tokens: int) -> Turn | None:
        request, known = self.serving.of(name), scheduler.requests.get(name)
        if request is None or known is None:
            return None
        done = known.num_computed_tokens - tokens  # the scheduler has counted these already
        if not request.started:
            request.started, request.cached = True, done
        reads = done < known.num_prompt_tokens or (known.num_preemptions and done < known.num_tokens - 1)
        phase = DECODE if not reads else RECOMPUTE if known.num_preemptions else PREFILL
        return request, phase, tokens, 0

    @guarded(PART)
    def preempted(self, _: Any, request: Any, *__: Any, **___: Any) -> None:
        """Note a request that loses its place in the cache."""
        at = now()
        self.serving.span(self.serving.of(request.request_id), "preempt", at, at, least=0)

    @guarded(PART)
    def aborted(self, scheduler: Any, keys: Any, *_: Any, **__: Any) -> None:
        """End requests whose client left, or whose text had a stop string: the frontend ends them."""
        keys = [keys] if isinstance(keys, str) else list(scheduler.requests if keys is None else keys)
        for request in filter(None, map(self.serving.of, keys)):
            self.serving.finished(request)

    def update(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """End an iteration once its requests have their tokens."""
        known = self._computed(scheduler)
        result = original(scheduler, *args, **kwargs)
        self._updated(known)
        return result

    @guarded(PART)
    def _computed(self, scheduler: Any) -> dict[str, object]:
        self.batches.computed(_has_workers(scheduler))
        return dict(scheduler.requests)  # those that finish leave the scheduler

    @guarded(PART)
    def _updated(self, known: dict[str, object]) -> None:
        self.batches.end(known, lambda own: int(own.num_output_tokens), lambda own: bool(own.is_finished()))


def _has_workers(scheduler: Any) -> bool:
    """Return whether other processes run the model."""
    config = getattr(getattr(scheduler, "vllm_config", None), "parallel_config", None)
    return getattr(config, "distributed_executor_backend", None) in ("mp", "ray")
