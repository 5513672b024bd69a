"""Timing of calls on the CPU."""

from __future__ import annotations

import gc
import resource
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fathom.referee.child.guards import now, sleep, threads
from fathom.referee.child.values import Call, kind, leaves, raw
from fathom.units import NS_PER_S

GRACE_S, MOST_S = 0.005, 0.1  # time in which late writes show; with other threads running, at most


class Processor:
    """Times calls one after another with the monotonic clock; there is no launch latency to remove."""

    device = "cpu"

    def run(
        self, target: Callable[..., Any], calls: Sequence[Call], *, repeat: int = 1, **_options: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """Take one sample over all `calls`, `repeat` times: `{"ns", "copied_ns", "preempted"}`, and the
        latest results. Copying one of them is timed too.
        """
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
        """Time of a plain copy of the result's bytes in ns: anything else that reading the result does
        belongs to the call.
        """
        self.snapshot, copied = [], 0
        for _, leaf in leaves(result):
            if kind(leaf) in ("tensor", "array"):
                begin = now()
                self.snapshot.append(raw(leaf))
                copied += now() - begin
        return copied

    def late(self, result: Any) -> str | None:
        """The reason if the latest call's `result` changed after it was timed, else None."""
        until = now() + NS_PER_S * MOST_S
        while True:
            sleep(GRACE_S)
            if _bytes(result) != self.snapshot:
                return "late-result"
            if threads() == 1 or now() >= until:
                return None

    def settle(self) -> None:
        """Wait until the device is idle."""

    def release(self) -> None:
        """Release unused memory."""

    def move(self, largest: int) -> None:
        """Do nothing: the operating system places allocations."""


def _bytes(result: Any) -> list[bytes]:
    return [raw(leaf) for _, leaf in leaves(result) if kind(leaf) in ("tensor", "array")]
