"""Operators on a processor: their time from the work, and the ceilings by shape and by footprint."""

from __future__ import annotations

import math
from functools import cache

import msgspec
import numpy as np

from fathom.analysis.results import LedgerRow
from fathom.data import load
from fathom.machine import Ceiling, find_ceiling
from fathom.planner.training.pace import Pace
from fathom.units import MS_PER_S

_IN_PLACE = 4 / 3  # of a triad's rate: a line that is read need not be fetched again to be written
_FLOAT = 4  # bytes of an element, for the number of threads that share an operator


class HostOps:
    """Plans operators from a machine file's ceilings of the host, and from shares by kind of operator.

    `resident` is the step's tensors in bytes: an operator reads from the cache that holds all of them,
    because the rest of the step has passed since its last use. Without a `pace`, calls take multiples of the
    dispatch of one operator.
    """

    def __init__(self, ceilings: list[Ceiling], resident: float = 0.0, pace: Pace | None = None) -> None:
        self.ceilings, self.resident, self.pace = ceilings, resident, pace
        self.cache = self._ceiling("host.cache")
        self.dispatch = self._ceiling("host.dispatch")
        self.bandwidths = _by_size([c for c in (self.cache, self._ceiling("host.triad")) if c])

    def missing(self) -> list[str]:
        """Return the ceilings that the plan needs and the machine file lacks."""
        needed = ("host.cache", "host.dispatch", "host.triad", "host.matmul.fp32")
        return [name for name in needed if self._ceiling(name) is None]

    def planned(self, row: LedgerRow) -> float:
        """Return the milliseconds of a row of the ledger: its calls, and its work at the ceilings."""
        count = row.count or 1.0
        called = count * (self.pace.called(row.detail) if self.pace else self._dispatched(_data().call))
        each = (row.flops or 0.0) / count, (row.bytes or 0.0) / count
        working = self._product(row, *each) if row.unit else self._streamed(row.detail, each[1])
        return called + MS_PER_S * count * working

    def error(self, row: LedgerRow) -> float:
        """Return the expected error of a row's work in milliseconds."""
        called = (row.count or 1.0) * self.pace.called(row.detail) if self.pace else 0.0
        return _data().spread * max(0.0, self.planned(row) - called)

    def gaps(self, calls: float) -> float:
        """Return the milliseconds of Python between this number of calls."""
        if self.pace:
            return self.pace.outside
        return calls * self._dispatched(_data().gap)

    def _dispatched(self, times: float) -> float:
        return MS_PER_S * times * self.dispatch.value if self.dispatch else 0.0

    def _product(self, row: LedgerRow, flops: float, size: float) -> float:
        """Return the seconds of a product or of attention: FLOPs at the rate of products of this size."""
        ceiling = self._ceiling(f"host.{row.unit}")
        if ceiling is None or not flops:
            return self._streamed(row.detail, size)
        return flops / (rate_at(ceiling, flops) * share_of(row.detail, _data().products))

    def _streamed(self, name: str, size: float) -> float:
        """Return the seconds of other work: its traffic where it fits, or the arithmetic of its kind."""
        if not size or self.cache is None:
            return 0.0
        threads = float(self.cache.at.get("threads", 1))
        shared = (
            1 if name.removeprefix("aten::") in _data().serial else math.ceil(size / _FLOAT / _data().grain)
        )
        sharing = min(1.0, shared / threads)
        computed = self.cache.value * share_of(name, _data().kinds)
        streamed = self._bandwidth(max(size, self.resident)) * (_IN_PLACE if name.endswith("_") else 1.0)
        return size / (min(computed, streamed) * sharing)

    def _bandwidth(self, size: float) -> float:
        sizes, rates = zip(*self.bandwidths, strict=True)
        return float(np.exp(np.interp(math.log(size), np.log(sizes), np.log(rates))))

    def _ceiling(self, name: str) -> Ceiling | None:
        return find_ceiling(self.ceilings, name, None)


def rate_at(ceiling: Ceiling, flops: float) -> float:
    """Return the rate of a product of `flops`, between the sizes that were measured."""
    best: dict[float, float] = {}
    for point in ceiling.series:
        work = 2.0 * math.prod(point["shape"])
        best[work] = max(best.get(work, 0.0), point["value"])
    if not best:
        return ceiling.value
    works, rates = zip(*sorted(best.items()), strict=True)
    return float(np.interp(math.log(flops), np.log(works), rates))


def share_of(name: str, table: dict[str, float]) -> float:
    """Return the share of its ceiling that an operator reaches; 1 if its table does not name it."""
    return table.get(name.removeprefix("aten::"), 1.0)


def _by_size(ceilings: list[Ceiling]) -> list[tuple[float, float]]:
    """Return bandwidths by the bytes of the arrays that were measured, smallest first."""
    points = {point["bytes"]: point["value"] for c in ceilings for point in c.series if "bytes" in point}
    return sorted((float(size), float(rate)) for size, rate in points.items())


class _Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of host_ops.yaml, which explains the fields."""

    grain: int
    call: float
    gap: float
    spread: float
    serial: list[str]
    kinds: dict[str, float]
    products: dict[str, float]


@cache
def _data() -> _Shares:
    return msgspec.convert(load(__package__, "host_ops"), _Shares)
