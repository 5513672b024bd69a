"""Refuse tables whose columns have other types, lack required values, or hold impossible numbers.

Analyses rely on this, because a sounding may come from anyone: ids are used as positions, times are
subtracted and summed. The ranges are wider than those of any recording; they keep arithmetic exact.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fathom.errors import NotASoundingError, file_error
from fathom.regular import require_regular
from fathom.sounding.schema import MOST_COUNT, MOST_NS, TABLES

DEVICES = 4096  # more than any host has
DEVICES_OF_RANK = 128  # more than any process uses: each has a ledger
_TIMES = {"start_ns", "end_ns", "mark_ns", "time_ns", "device_ns", "device_end_ns"} | {
    *("submitted_ns", "token_ns", "sent_ns", "prepared_ns", "computed_ns", "sampled_ns"),
}
_IDENTITIES = {"thread", "stream", "correlation", "throttle", "graph_node"}  # any number may name something
_POSITIONS = {"device": (-1, DEVICES), "group": (0, DEVICES)}
_REQUIRED = {
    "steps": ("step", "kind", "mark_ns"),
    "summaries": ("step", "start_ns", "end_ns", "kind", "steps", "shortest_ns", "counts", "totals_ns"),
    "ops": ("id", "start_ns", "end_ns", "name"),
    "launches": ("start_ns", "end_ns"),
    "kernels": ("device", "stream", "kind", "name", "start_ns", "end_ns"),
    "waits": ("start_ns", "end_ns"),
    "stacks": ("time_ns", "thread"),
    "samples": ("device", "group", "start_ns", "end_ns", "values"),
    "counters": ("device", "family", "counter", "value"),
    "input": ("loader", "start_ns"),
    "memory": ("time_ns", "device", "event"),
    "telemetry": ("device", "time_ns"),
    "usage": ("start_ns", "end_ns", "steps"),
    "requests": ("request", "start_ns", "submitted_ns", "end_ns"),
    "request_spans": ("request", "what", "start_ns", "end_ns"),
    "iterations": ("iteration", "start_ns", "end_ns", "kind"),
    "turns": ("iteration", "request", "phase", "tokens", "generated"),
}
_BINS = ("shortest_ns", "counts", "totals_ns")
_BEGINS = ("start_ns", "mark_ns")  # no later than `end_ns` of their row
_ABSENT = {"mark_ns"}  # required in all rows or in none
_FREE_ROWS, _ROWS_PER_BYTE = 1 << 20, 64  # a table of more rows takes at least a byte per 64 rows


def scanned(file: Path) -> pl.LazyFrame:
    """Scan the table in a Parquet file. Raises NotASoundingError if it is not a file or is too long."""
    try:
        size = require_regular(file)
    except OSError as error:
        raise NotASoundingError(file_error(file, error)) from None
    frame = pl.scan_parquet(file, glob=False)
    rows = collected(frame.select(pl.len()), file).item()
    if rows > max(_FREE_ROWS, size * _ROWS_PER_BYTE):
        raise NotASoundingError(f"{file} claims {rows:,} rows in {size:,} bytes, so it is not read.")
    return frame


def collected(frame: pl.LazyFrame, file: Path) -> pl.DataFrame:
    """Read a table. Raises NotASoundingError if its file is damaged."""
    try:
        return frame.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        raise NotASoundingError(f"{file} is damaged; record or import it again.") from None


def require_valid(frame: pl.LazyFrame | pl.DataFrame, table: str, file: Path) -> None:
    """Raise NotASoundingError if a column has a wrong type or an impossible value. Reads numbers only."""
    if why := flaw(frame.lazy(), table, file):
        raise NotASoundingError(f"{file} is damaged: {why}.")


def flaw(frame: pl.LazyFrame, table: str, file: Path) -> str | None:
    """Return what makes a table invalid: a type, a missing value, an impossible number; None if valid."""
    schema, known = frame.collect_schema(), TABLES[table]
    for column, kind in schema.items():
        if column in known and kind != known[column]:
            return f"column {column} is {kind}, not {known[column]}"
    for column in _REQUIRED[table]:
        if column not in schema:
            return f"it has no column {column}"
    numeric = [column for column, kind in known.items() if kind.is_numeric() and column in schema]
    numbers = collected(frame.select(numeric), file)
    for values in numbers:
        nulls = values.null_count()
        absent = values.name in _ABSENT and nulls == len(values)
        if values.name in _REQUIRED[table] and nulls and not absent:
            return f"column {values.name} lacks a value"
        if not _possible(values):
            return f"column {values.name} has an impossible value"
        if values.name == "device" and (count := values.n_unique()) > DEVICES_OF_RANK:
            return f"it has {count:,} devices, more than any process uses"
    if table == "summaries" and _has_odd_bins(collected(frame.select(_BINS), file)):
        return "its bins of step lengths do not match"
    return _disorder(numbers, table)


def _disorder(numbers: pl.DataFrame, table: str) -> str | None:
    begins = next((column for column in _BEGINS if {column, "end_ns"} <= set(numbers.columns)), None)
    if begins and (numbers[begins] > numbers["end_ns"]).any():
        return "a row ends before it begins"
    # Ids are in the order of nesting, so that no op can be around itself.
    if table == "ops" and "parent" in numbers.columns and (numbers["parent"] >= numbers["id"]).any():
        return "an op is around one that began before it"
    return None


def _has_odd_bins(bins: pl.DataFrame) -> bool:
    """Every row has as many counts and totals as bins, and no number is negative or too large."""
    if any(bins.null_count().row(0)):
        return True
    first, *others = bins.select(pl.all().list.len()).get_columns()
    if any((first != other).any() for other in others):
        return True
    values = [column.explode().to_frame("value") for column in bins.filter(first > 0)]
    inside = (frame["value"].is_between(0, MOST_COUNT).fill_null(False).all() for frame in values)
    return not all(inside)


def _possible(column: pl.Series) -> bool:
    if column.dtype.is_float():
        return bool(column.is_finite().all())
    low, high = column.min(), column.max()
    least, most = _range(column.name)
    return low is None or least <= low <= high <= most  # type: ignore


def _range(column: str) -> tuple[int, int]:
    if column in _POSITIONS:
        return _POSITIONS[column]
    if column in _IDENTITIES:
        return -(2**63), 2**63
    most = MOST_NS if column in _TIMES else MOST_COUNT
    return -most, most
