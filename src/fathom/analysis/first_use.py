"""Work that a program does only once: it starts the device, and loads libraries and code."""

from __future__ import annotations

import re

import polars as pl

from fathom.analysis import causes
from fathom.analysis.entries import Entry
from fathom.sounding import TABLES

LONG_NS = 1_000_000  # a call that loads nothing takes microseconds
BEYOND = 10  # times a later launch of the same kernel
COLUMNS = ["thread", "start_ns", "end_ns", "detail"]
_LAUNCH = re.compile(r"Launch(Kernel|Cooperative)|ModuleLaunch|GraphLaunch")
# Calls that ask for facts or make handles: the first one in a process starts the device.
_START = re.compile(
    r"^(cuda|hip|cu)(\w*Get(?!Error)\w+|StreamCreate\w*|EventCreate\w*|Ctx\w*|Init|SetDevice|DevicePrimary\w*"
    r"|DeviceEnablePeerAccess|\w*Occupancy\w*)$"
)


def first_uses(calls: pl.DataFrame, kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the times of first use, with COLUMNS: calls that load code, and ops around long ones.

    A launch loads code if it blocks long before the first kernel of its name, while later launches of that
    kernel are short. Until the program first frees memory, a recording that starts the device also shows the
    allocator's first growth.
    """
    took = pl.col("end_ns") - pl.col("start_ns")
    if _is_warm(calls["api"], calls.filter(took >= LONG_NS)["api"]):
        return _NO_USE
    calls = _with_ops(calls, ops)
    starting, loading = _called(calls, _START.pattern), _called(calls, causes.APIS[_CAUSE].pattern)
    long = pl.concat([starting.filter(took >= LONG_NS), _first_launches(calls, kernels)])
    long = pl.concat([long, loading.filter(took >= LONG_NS)])
    around = ops.filter(pl.col("kind") == "op", pl.col("id").is_in(long["op"].drop_nulls().implode()))
    times = [loading, long, _growth(calls, around) if _starts(starting, took) else calls.clear()]
    loaders = around.select("thread", "start_ns", "end_ns", detail=pl.col("name").fill_null(""))
    return pl.concat([loaders, *(rows.select(COLUMNS) for rows in times)]).unique(maintain_order=True)


_CAUSE = Entry.FIRST_USE.cause
_PIECE = ["burst", "correlation"]
_NO_USE = pl.DataFrame(schema={name: TABLES["launches"].get(name, pl.String) for name in COLUMNS})


def _is_warm(every: pl.Series, long: pl.Series) -> bool:
    """Return whether no call loads code, and no long one starts the device or launches a kernel."""
    loads = causes.APIS[_CAUSE].search
    if any(map(loads, every.unique().drop_nulls())):
        return False
    return not any(_START.search(name) or _LAUNCH.search(name) for name in set(long.drop_nulls()))


def _with_ops(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with `detail`, the op that made each, or else its name."""
    if "op" not in calls.columns:
        calls = calls.with_columns(op=pl.lit(None, pl.Int64))
    names = ops.filter(pl.col("kind") == "op").select(op="id", by="name").unique("op")
    joined = calls.join(names, on="op", how="left", maintain_order="left")
    return joined.with_columns(detail=pl.coalesce("by", "api").fill_null(""))


def _called(calls: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Return the calls whose name matches; each name is matched once, by Python for its lookaheads."""
    names = [name for name in calls["api"].unique().drop_nulls() if re.search(pattern, name)]
    return calls.filter(pl.col("api").is_in(names))


def _starts(starting: pl.DataFrame, took: pl.Expr) -> bool:
    return bool(starting.select((took >= LONG_NS).any()).item()) if starting.height else False


def _first_launches(calls: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return launches that blocked until the first kernel of its name began."""
    took = pl.col("end_ns") - pl.col("start_ns")
    launches = _called(calls, _LAUNCH.pattern).drop_nulls("correlation").with_columns(took=took)
    pieces = kernels.sort("start_ns").unique(_PIECE, keep="first", maintain_order=True)
    pieces = pieces.select(*_PIECE, began="start_ns", kernel="name")
    rows = launches.join(pieces, on=_PIECE, how="inner").sort("start_ns")
    first = pl.int_range(pl.len()).over("kernel") == 0
    later = pl.col("took").filter(~first).median().over("kernel").fill_null(0)
    at_once = (pl.col("began") - pl.col("end_ns")).abs() < LONG_NS
    loads = first & at_once & (pl.col("took") >= LONG_NS) & (pl.col("took") >= BEYOND * later)
    return rows.filter(loads).select(calls.columns)


def _growth(calls: pl.DataFrame, around: pl.DataFrame) -> pl.DataFrame:
    """Return allocations before the first call that frees memory outside the ops `around`."""
    allocator = _called(calls, causes.APIS[Entry.ALLOCATOR.cause].pattern)
    frees = pl.col("api").str.contains(causes.FREES)
    elsewhere = ~pl.col("op").is_in(around["id"].implode()).fill_null(False)
    until = allocator.filter(frees, elsewhere)["start_ns"].min()
    grows = allocator.filter(~frees)
    return grows if until is None else grows.filter(pl.col("start_ns") < until)
