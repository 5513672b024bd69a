"""Timing of calls on the CPU."""

from __future__ import annotations

import gc
import resource
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fathom.referee.child.guards import now, sleep, threads
from fathom.referee.child.values import Call, kind, leaves, raw
from fathom.referee.protocol import SampleTimes
from fathom.units import NS_PER_S

GRACE_S, MOST_S = 0.005, 0.1  # wait for late writes: once, or up to MOST_S with other threads running


class Processor:
    """Times calls one after another with the monotonic clock; there is no launch latency to remove."""

    device = "cpu"

    def run(
        self, target: Callable[..., Any], calls: Sequence[Call], *, repeat: int = 1, **_options: Any
    ) -> tuple[SampleTimes, list[Any]]:
        """Take one sample over all `calls`, `repeat` times. Returns its times, and the latest results."""
        results: deque[Any] = deque(maxlen=len(calls))
        keep = results.append
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        gc.disable()
        begin = now()
        for _ in range(repeat):
            for args, kwargs in calls:
                keep(target(*args, **kwargs))
        ns = now() - begin
        copied_ns = self._copy(results[-1])
        gc.enable()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        return {"ns": ns, "copied_ns": copied_ns, "preempted": after - before}, list(results)

    def _copy(self, result: Any) -> int:
        """Copy the result's bytes and return the time in ns. Other work on reading the result, such as lazy
        computation, counts as the call's.
        """
        self.snapshot, copied = [], 0
        for _, leaf in leaves(result):
            if kind(leaf) in ("tensor", "array"):
                begin = now()
                self.snapshot.append(raw(leaf))
                copied += now() - begin
        return copied

    def late(self, result: Any) -> str | None:
        """Return the code of a refusal if the latest call's `result` changed after timing, else None."""
        until = now() + NS_PER_S * MOST_S
        while True:
            sleep(GRACE_S)
            there = [raw(leaf) for _, leaf in leaves(result) if kind(leaf) in ("tensor", "array")]
            if there != self.snapshot:
                return "late-result"
            if threads() == 1 or now() >= until:
                return None

    def settle(self) -> None:
        """Do nothing: a call has ended when it returns."""

    def release(self) -> None:
        """Do nothing: unused memory is not kept."""

    def move(self, largest: int) -> None:
        """Do nothing: the operating system places allocations."""
