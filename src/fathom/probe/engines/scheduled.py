"""Follow a scheduler whose batches are computed while the next ones are scheduled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from fathom.pristine import time
from fathom.probe.engines.serving import Batch, Request, Serving

WORKERS = "waiting for workers"  # the cause of a wait
now = time.time_ns
Turn = tuple[Request, int, int, int]  # request, phase, tokens, 0: tokens generated are known at the end


class Scheduled:
    """The batches that were scheduled and are not finished, oldest first.

    Iterations do not overlap: one begins when the one before has ended, or when it was scheduled.
    """

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self._batches: deque[Batch] = deque()
        self._ended = 0

    def begin(
        self,
        start: int,
        turns: list[Turn],
        waiting: int,
        kv_used: int,
        kv_total: int,
        block: int | None = None,
    ) -> None:
        """Note a batch that has been scheduled; `start` is when that began, `block` the tokens of a block."""
        batch = self.serving.begin(start)
        batch.prepared, batch.turns = now(), turns
        batch.waiting, batch.kv_used, batch.kv_total, batch.kv_block = waiting, kv_used, kv_total, block
        self._batches.append(batch)

    def computed(self, elsewhere: bool = False) -> None:
        """Note that the oldest batch has its tokens; `elsewhere`: from other processes."""
        if not self._batches:
            return
        batch = self._batches[0]
        batch.computed = now()
        if elsewhere:
            self.serving.session.wait(WORKERS, max(batch.prepared or 0, self._ended), batch.computed)

    def end(
        self, known: Mapping[Any, Any], generated: Callable[[Any], int], finished: Callable[[Any], bool]
    ) -> None:
        """End the oldest batch, and its requests that have finished.

        `known` has the engine's own requests by key; `generated` returns the tokens of one so far.
        """
        if not self._batches:
            return
        batch = self._batches.popleft()
        batch.start = max(batch.start, self._ended)
        batch.prepared = max(batch.prepared or 0, batch.start)
        batch.turns = [
            (r, phase, tokens, generated(known[r.key]) - r.generated if r.key in known else 0)
            for r, phase, tokens, _ in batch.turns
        ]
        self.serving.batch = batch
        self.serving.generated()
        requests = [request for request, *_ in batch.turns]
        self.serving.iterated()
        self._ended = now()
        for request in requests:
            if request.key in known and finished(known[request.key]):
                self.serving.finished(request)
