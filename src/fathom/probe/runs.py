"""Marks: run-length encoding, and deferral while no decision is due."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fathom.probe.threads import get_ident

if TYPE_CHECKING:
    from fathom.probe.chooser import StepSignal
    from fathom.probe.steps import StepFacts


OFTEN_NS, RARELY_NS = 20_000_000, 100_000_000  # to defer; often if a GPU is timed or batches are recorded


class Label(NamedTuple):
    """A mark without step and time; `kind`, `samples`, `tokens` and `query` are of the step that it ends."""

    source: str
    thread: int
    phase: str
    burst: int
    kind: str
    samples: int | None
    tokens: int | None
    stream: int | None
    query: int | None = None


class MarkRuns:
    """Collects consecutive marks; `take` returns the `marks` record of the run so far."""

    def __init__(self) -> None:
        self._first = self._next = 0
        self._label: Label | None = None
        self.times: list[int] = []

    def add(self, k: int, ns: int, label: Label) -> dict[str, object] | None:
        """Add mark k; return the record of the finished run if the mark starts a new one."""
        if label == self._label and self.times and k == self._first + len(self.times):
            self.times.append(ns)
            self._next = k + 1
            return None
        ended = self.take()
        self._first, self._label, self.times, self._next = k, label, [ns], k + 1
        return ended

    def repeat(self, times: list[int]) -> None:
        """Add the next marks with the label of the previous one."""
        if not self.times:
            self._first = self._next
        self.times += times
        self._next += len(times)

    def take(self) -> dict[str, object] | None:
        """End the run and return its record; None if it is empty."""
        if self._label is None or not self.times:
            return None
        times, self.times = self.times, []
        return {"t": "marks", "k": self._first, "ns": times, **self._label._asdict()}


class DeferredMarks:
    """Stores the times of marks like the last processed one, for a while.

    The most frequent hooks append to it directly, without a call of ours or the fence, which would cost more
    than the rest of a short mark: if mark and facts are alike, and `now()` is before `until`. They call
    partials, because a profile function of the program does not see these. `fathom.step()` compares its
    arguments one by one, which takes half as long as comparing a tuple.
    """

    __slots__ = (
        *("append", "facts", "kind", "like", "marker", "now", "optimizer"),
        *("samples", "thread", "times", "tokens", "until"),
    )

    def __init__(self, facts: StepFacts, clock: Callable[[], int]) -> None:
        self.facts, self.now = facts, partial(clock)
        self.like: tuple[object, ...] = ()  # source, key, kind, samples, tokens
        self.kind: str | None = None
        self.samples: int | None = None
        self.tokens: int | None = None
        self.marker = 0  # the thread if `fathom.step()` marks the steps
        self.optimizer = 0  # the key if an optimizer marks the steps
        self.thread = self.until = 0  # `until` in ns
        self.times: list[int] = []
        self.append = partial(self.times.append)

    def begin(self, signal: StepSignal, ns: int) -> None:
        """Start deferring marks like `signal`, for `ns`."""
        self.like = (signal.source, signal.key, signal.kind, signal.samples, signal.tokens)
        self.kind, self.samples, self.tokens = signal.kind, signal.samples, signal.tokens
        self.optimizer = signal.key if signal.source == "optimizer" else 0
        self.thread = get_ident()
        self.marker = self.thread if signal.source == "mark" else 0
        self.until = signal.ns + ns

    def end(self) -> list[int]:
        """Stop deferring and return the stored times."""
        self.until = 0
        times, self.times = self.times, []
        self.append = partial(self.times.append)
        return times
