"""Bus bandwidth of collectives, and the links' ceiling for a message size.

Algorithm bandwidth is size / time. The factors to bus bandwidth are those of NCCL's tests
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md); the size is the larger buffer of one
rank.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from fathom.analysis.communication.results import Collective
from fathom.analysis.results import LedgerRow
from fathom.machine import MEASURED, from_machine
from fathom.machine.datasheet import find as sheet_named
from fathom.machine.model import Machine
from fathom.units import KIB, MIB

LINK = "link"  # the bound of a collective in a ledger
_SHARE = ("all_gather", "reduce_scatter", "all_to_all")
_ONCE = ("broadcast", "reduce", "send_recv", "gather", "scatter")


def bus_factor(operation: str, ranks: int) -> float | None:
    """Return the ratio of bus bandwidth to algorithm bandwidth for `ranks` ranks; None if unknown."""
    if ranks < 2:
        return 0.0
    share = (ranks - 1) / ranks
    if operation == "all_reduce":
        return 2 * share
    if operation in _SHARE:
        return share
    return 1.0 if operation in _ONCE else None


class Ceilings(msgspec.Struct):
    """Bus bandwidth in B/s: measured by operation as (bytes, B/s), and the links' datasheet figure."""

    measured: dict[str, list[tuple[float, float]]] = msgspec.field(default_factory=dict)
    link: float | None = None

    def at(self, operation: str, size: float) -> tuple[float | None, str]:
        """Return the ceiling of `operation` at `size` bytes with its source; (None, "") if there is none.

        Between measured sizes it is interpolated in the logarithm of the size.
        """
        series = self.measured.get(operation)
        if series and size > 0:
            sizes, rates = zip(*series, strict=True)
            at = float(np.interp(np.log(size), np.log(sizes), rates))
            nearest = min(sizes, key=lambda measured: abs(np.log(measured / size)))
            return at, f"{MEASURED} at {_size(nearest)}"
        return (self.link, "datasheet") if self.link else (None, "")


def ceilings_of(machine: Machine, name: str) -> Ceilings:
    """Return the ceilings of the machine's links; `name` is the device's, for the datasheet."""
    measured = {
        ceiling.id.removeprefix("collective."): sorted(
            (float(row["bytes"]), float(row["value"])) for row in ceiling.series
        )
        for ceiling in from_machine(machine)
        if ceiling.id.startswith("collective.") and ceiling.series
    }
    sheet = sheet_named({"name": name})
    figure = sheet.figures.get("link") if sheet else None
    return Ceilings(measured, figure.value if figure else None)


def at_their_size(rows: Iterable[LedgerRow], collectives: Iterable[Collective], link: float) -> None:
    """Set the time at the ceiling of collectives in a ledger to that of their message sizes, where measured.

    So far it is that at `link`, the highest bus bandwidth of any size, which small messages never reach.
    """
    needed: dict[str, list[tuple[float, float]]] = {}
    unknown: set[str] = set()
    for collective in collectives:
        ceiling, moved = collective.ceiling_bytes_per_s, collective.count * (collective.bytes or 0.0)
        for family in collective.families:
            if ceiling and moved and collective.ceiling.startswith(MEASURED):
                needed.setdefault(family, []).append((moved, moved * link / ceiling))
            else:
                unknown.add(family)
    for row in rows:
        if row.bound == LINK and row.at_ceiling_ms is not None and row.detail in needed.keys() - unknown:
            moved, longer = (sum(column) for column in zip(*needed[row.detail], strict=True))
            row.at_ceiling_ms *= longer / moved


def _size(count: float) -> str:
    if count >= MIB:
        return f"{count / MIB:.3g} MiB"
    return f"{count / KIB:.3g} KiB"
