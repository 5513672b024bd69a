"""Refuse traces that cannot be of one job: of GPUs of two vendors, or recorded days apart."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

from fathom.errors import BadInputError
from fathom.sounding.events import Trace
from fathom.units import NS_PER_S

FIRST_TRACES_NS = 1_500_000_000_000_000_000  # July 2017: before the first release of torch.profiler
DAY_NS = int(86_400 * NS_PER_S)
MOST_DAYS = 2  # clocks of machines differ, and ranks may be traced one after another
_VENDORS = {"AMD": r"^hip[A-Z]", "NVIDIA": r"^cu(da)?[A-Z]"}  # runtime calls, by vendor


class Seen(NamedTuple):
    """A trace's file, the vendor of its GPUs ("" if unknown), and its start in ns (None if unknown)."""

    path: Path
    vendor: str
    start_ns: int | None

    @classmethod
    def of(cls, path: Path, trace: Trace, start_ns: int) -> Seen:
        """Return these facts of a trace, whose first record begins at `start_ns`."""
        return cls(path, _vendor(trace), start_ns if start_ns > FIRST_TRACES_NS else None)


def check_related(first: Seen, other: Seen) -> None:
    """Raise BadInputError if two traces cannot be of one job."""
    if why := _difference(first, other):
        raise BadInputError(
            f"{other.path} is of another job than {first.path}: {why}; import them separately."
        )


def _difference(first: Seen, other: Seen) -> str:
    if first.vendor and other.vendor and first.vendor != other.vendor:
        return f"it ran on GPUs of {other.vendor}, not of {first.vendor}"
    if first.start_ns is None or other.start_ns is None:
        return ""
    days = abs(other.start_ns - first.start_ns) / DAY_NS
    return f"they were recorded {days:,.0f} days apart" if days > MOST_DAYS else ""


def _vendor(trace: Trace) -> str:
    """Return the vendor whose runtime a trace calls; "" if it calls none, or those of several."""
    launches = trace.tables.get("launches", pl.DataFrame())
    if launches.is_empty():
        return ""
    calls = launches["api"].unique()
    called = [vendor for vendor, pattern in _VENDORS.items() if calls.str.contains(pattern).any()]
    return called[0] if len(called) == 1 else ""
