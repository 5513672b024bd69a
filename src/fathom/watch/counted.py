"""Steps that a long run counts instead of recording them one by one: windows, which grow until they close."""

from __future__ import annotations

from typing import Any, NamedTuple

from fathom.watch.following import Record


class Counted(NamedTuple):
    """Steps of one kind. `bins` are their number and total ns, by the shortest length in the bin."""

    kind: str
    samples: int | None
    tokens: int | None
    waits: dict[str, int]
    bins: dict[int, tuple[int, int]]

    @property
    def steps(self) -> int:
        return sum(steps for steps, _ in self.bins.values())

    @property
    def ns(self) -> int:
        """The length of all steps, without compilation and checkpoints."""
        return sum(ns for _, ns in self.bins.values())


class Window:
    """The newest window, as far as it was read: `count` steps, the first of which is number `k`."""

    def __init__(self) -> None:
        self.k, self.count = -1, 0
        self._kinds: dict[str, Counted] = {}

    def known(self, k: int) -> int:
        """Return how many steps of the window that begins with step `k` were read."""
        return self.count if k == self.k else 0

    def grow(self, record: Record) -> list[Counted]:
        """Return the steps that `record` adds to earlier versions of its window."""
        old = self._kinds if record["k"] == self.k else {}
        kinds = {row[0]: _counted(row) for row in record["kinds"]}
        self.k, self.count, self._kinds = record["k"], record["n"], kinds
        return [_without(kind, old[name]) if name in old else kind for name, kind in kinds.items()]


def _counted(row: list[Any]) -> Counted:
    name, _, samples, tokens, waits, bins = row
    return Counted(str(name), samples, tokens, dict(waits), {low: (steps, ns) for low, steps, ns in bins})


def _without(new: Counted, old: Counted) -> Counted:
    """Return the counts in `new` beyond those in `old`."""
    waits = {cause: ns - old.waits.get(cause, 0) for cause, ns in new.waits.items()}
    known = {low: old.bins.get(low, (0, 0)) for low in new.bins}
    bins = {low: (steps - known[low][0], ns - known[low][1]) for low, (steps, ns) in new.bins.items()}
    more = {low: grown for low, grown in bins.items() if grown[0] > 0}
    return Counted(new.kind, _less(new.samples, old.samples), _less(new.tokens, old.tokens), waits, more)


def _less(new: int | None, old: int | None) -> int | None:
    return None if new is None or old is None else new - old
