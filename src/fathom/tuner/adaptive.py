"""`fathom.adapt`: choose a setting while a job runs, by the costs that it reports; with a guard and rollback.

A bandit for a few values of one setting that may change at any time: prefetched batches, a server's batch or
chunk size, the length of speculation. It uses the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
SKIPPED = 1  # costs after a change, which still contain the previous value
GUARDED = 2  # costs in a row beyond the guard, which end a stretch
LEAST = 3  # stretches of a value before its scatter is believed
SHARE = 0.05  # scatter assumed until then, as a share of the mean
FORGET = 0.98  # weight of all that is known when another stretch ends, because costs drift


@dataclass
class _Arm:
    """The stretches of one value: their discounted number, mean and variance."""

    n: float = 0.0
    mean: float = 0.0
    variance: float = 0.0
    stretches: int = 0
    barred: bool = False

    def add(self, cost: float) -> None:
        self.n, self.stretches = self.n + 1, self.stretches + 1
        off = cost - self.mean
        self.mean += off / self.n
        self.variance += (off * (cost - self.mean) - self.variance) / self.n

    @property
    def scatter(self) -> float:
        known = math.sqrt(max(self.variance, 0.0))
        return known if self.stretches >= LEAST else max(known, SHARE * abs(self.mean))


class Adaptive(Generic[T]):
    """The present `value` of a setting; report the cost of each unit of work with `cost`.

        prefetch = fathom.adapt([2, 4, 8], default=2)
        for request in requests:
            began = time.perf_counter()
            serve(request, prefetch.value)
            prefetch.cost(time.perf_counter() - began)

    A value that costs more than `guard` beyond the best one is left at once; `failed` bars it for good.
    """

    def __init__(self, values: Sequence[T], default: T | None, stretch: int, guard: float) -> None:
        if not values or stretch <= SKIPPED or guard <= 0:
            raise ValueError("adapt needs values, a stretch of at least two costs, and a guard above 0")
        self._values = list(values)
        self._arms = [_Arm() for _ in values]
        self._home = 0 if default is None else self._values.index(default)
        self._now, self._stretch, self._guard = self._home, stretch, guard
        self._costs: list[float] = []
        self._seen = 0
        self.rollbacks = 0

    @property
    def value(self) -> T:
        """The value to use now."""
        return self._values[self._now]

    @property
    def best(self) -> T:
        """The value with the lowest mean cost so far; the default before any is known."""
        return self._values[self._best()]

    def cost(self, cost: float) -> None:
        """Report the cost of a unit of work under the present value, such as its seconds."""
        if not math.isfinite(cost):
            self.failed()
            return
        self._seen += 1
        if self._seen <= SKIPPED:
            return
        self._costs.append(cost)
        if self._breaks_guard():
            self.rollbacks += 1
            self._close(self._best())
        elif len(self._costs) >= self._stretch:
            self._close(None)

    def failed(self) -> None:
        """Report that the work failed under the present value, which is then never used again."""
        if self._now != self._home:
            self._arms[self._now].barred = True
            self.rollbacks += 1
        self._costs = []
        self._switch(self._best())

    def _breaks_guard(self) -> bool:
        best = self._arms[self._best()]
        recent = self._costs[-GUARDED:]
        if self._now == self._best() or not best.n or len(recent) < GUARDED:
            return False
        return min(recent) > (1 + self._guard) * best.mean

    def _best(self) -> int:
        known = [(arm.mean, place) for place, arm in enumerate(self._arms) if arm.n and not arm.barred]
        return min(known)[1] if known else self._home

    def _close(self, following: int | None) -> None:
        """End the stretch, and choose the next value: the one that may be the best."""
        for arm in self._arms:
            arm.n *= FORGET
        self._arms[self._now].add(sum(self._costs) / len(self._costs))
        self._costs = []
        self._switch(self._promising() if following is None else following)

    def _promising(self) -> int:
        total = sum(arm.n for arm in self._arms)
        usable = [place for place, arm in enumerate(self._arms) if not arm.barred]
        return min(usable, key=lambda place: self._bound(self._arms[place], total))

    def _bound(self, arm: _Arm, total: float) -> float:
        """Return the lowest mean that a value may have, by its scatter and its number of stretches."""
        if not arm.n:
            return -math.inf
        return arm.mean - arm.scatter * math.sqrt(2 * math.log(max(total, 2.0)) / arm.n)

    def _switch(self, place: int) -> None:
        if place != self._now:
            self._now, self._seen = place, 0


def adapt(
    values: Sequence[T], default: T | None = None, stretch: int = 10, guard: float = 0.5
) -> Adaptive[T]:
    """Return a setting that adapts to the costs that the program reports.

    `values` are those to choose from, `default` is the one to begin with and to return to. A value is used
    for `stretch` costs; one that costs over `guard` (a share) more than the best is left at once.
    """
    return Adaptive(values, default, stretch, guard)
