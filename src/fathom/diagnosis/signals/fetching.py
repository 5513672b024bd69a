"""Where a loader without workers makes batches: in the data set's code, or in the loader's own."""

from __future__ import annotations

import re

import polars as pl

from fathom.diagnosis.signals.lines import NO_STACKS
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import FetchingCode
from fathom.diagnosis.signals.value import signal

PHASE = "timeline"
LOADER = "/torch/utils/data/"
PLACE = re.compile(r":\d+$")
FEW = 5  # samples say nothing of shares


@signal("input.code")
def code(recorded: Recorded) -> FetchingCode:
    """The line of the program that most of the loader's time is spent in, and the share of these lines.

    Stacks of the thread that runs the steps show it where that thread loads.
    """
    stacks = recorded.store.table("stacks", recorded.account.rank)
    rows = stacks.filter(pl.col("phase") == PHASE).select("function", "source", "stack").collect()
    if rows.is_empty():
        raise UnknownSignalError(NO_STACKS)
    return fetching(rows)


def fetching(stacks: pl.DataFrame) -> FetchingCode:
    """The same of the rows `function`, `source` and `stack`. Raises UnknownSignalError without any.

    Few show a line, but no share.
    """
    loading = stacks.filter(pl.col("stack").str.contains(LOADER, literal=True))
    if loading.is_empty():
        raise UnknownSignalError("no stack was sampled while batches were made")
    beneath = pl.col("stack").str.split(LOADER).list.last()
    frame = pl.format("{} ({})", "function", "source")
    own = loading.filter(beneath.str.contains(frame, literal=True))
    return FetchingCode(own.height / loading.height if loading.height >= FEW else None, _line(own))


def _line(rows: pl.DataFrame) -> str | None:
    """The line with most samples, of the function with most samples."""
    if rows.is_empty():
        return None
    file = pl.col("source").str.replace(PLACE.pattern, "")
    counted = rows.with_columns(of_function=pl.len().over("function", file), of_line=pl.len().over("source"))
    return str(counted.sort("of_function", "of_line", "source", descending=True)["source"][0])
