"""Lines of the program at which the host waits, by sampled stacks."""

from __future__ import annotations

import polars as pl

from fathom.diagnosis.signals.lines import NO_STACKS
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.value import signal

PHASE = "timeline"
LEAST = 2  # samples: a single one may be of what came before the wait


@signal("host.waiting_lines")
def waiting_lines(recorded: Recorded) -> dict[str, str]:
    """file:line by cause (`gc`, `checkpoint`, `input` …): where most samples during these waits were taken.

    A loader without workers makes batches within the wait, so its line is in the data set's code.
    """
    stacks = recorded.store.table("stacks", recorded.account.rank).filter(phase=PHASE).collect()
    if stacks.is_empty():
        raise UnknownSignalError(NO_STACKS)
    waits = recorded.store.table("waits", recorded.account.rank).filter(phase=PHASE).collect()
    lines = ((str(cause), _line(stacks, rows)) for (cause,), rows in waits.group_by("cause"))
    return {cause: source for cause, source in lines if source}


def _line(stacks: pl.DataFrame, waits: pl.DataFrame) -> str | None:
    """The line with most samples, of the function with most samples."""
    spans = waits.select("thread", "start_ns", "end_ns").sort("start_ns")
    samples = stacks.filter(pl.col("source").is_not_null()).sort("time_ns")
    inside = samples.join_asof(
        spans, left_on="time_ns", right_on="start_ns", by="thread", check_sortedness=False
    ).filter(pl.col("time_ns") < pl.col("end_ns"))
    if inside.height < LEAST:
        return None
    file = pl.col("source").str.replace(r":\d+$", "")
    counts = inside.with_columns(of_function=pl.len().over("function", file), of_line=pl.len().over("source"))
    return str(counts.sort("of_function", "of_line", "source", descending=True)["source"][0])
