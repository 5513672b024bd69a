"""Timing calls on the processor."""

from __future__ import annotations

import gc
import resource
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fathom.referee.child.guards import now, sleep, threads
from fathom.referee.child.values import kind, leaves, raw
from fathom.units import NS_PER_S

GRACE_S, MOST_S = 0.005, 0.1  # in which work that goes on shows; with other threads about, at most
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Processor:
    """`run` times calls one after another by the monotonic clock; there is no launch latency to remove."""

    device = "cpu"

    def run(
        self, target: Callable[..., Any], calls: Sequence[Call], *, repeat: int = 1, **_options: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """One sample over all `calls`, `repeat` times: `{"ns", "copied_ns", "preempted"}`, and the latest
        results, of which one is copied in that time."""
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
        """Nanoseconds in which nothing but bytes was copied: what else a result does when it is looked at
        belongs to the call."""
        self.snapshot, copied = [], 0
        for _, leaf in leaves(result):
            if kind(leaf) in ("tensor", "array"):
                begin = now()
                self.snapshot.append(raw(leaf))
                copied += now() - begin
        return copied

    def late(self, result: Any) -> str | None:
        """The reason if the latest call's `result` is no longer what it was when its time was taken."""
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
        """Give back what is not used."""

    def move(self, largest: int) -> None:
        """Nothing: the system places what is allocated next as it likes."""


def _bytes(result: Any) -> list[bytes]:
    return [raw(leaf) for _, leaf in leaves(result) if kind(leaf) in ("tensor", "array")]
