"""A rare long step that happened to be recorded: what it did that others did not."""

from __future__ import annotations

import polars as pl

from fathom.analysis import causes
from fathom.diagnosis.signals.recorded import PHASES, Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Rare
from fathom.diagnosis.signals.step import typical_ms
from fathom.diagnosis.signals.value import signal

MS = 1e6
LONG = 3.0  # times a typical step
LIKE = 0.5  # of the longest clean step: as long, and it is one of those
NONE = "none of the rare long steps was recorded in detail"


@signal("step.rare", "ms")
def rare(recorded: Recorded) -> Rare:
    """The longest such step of the timeline or of the attribution."""
    typical = typical_ms(recorded)
    if typical is None:
        raise UnknownSignalError("no clean steps were recorded")
    table = recorded.store.table("steps", recorded.account.rank).filter(pl.col("parent").is_null())
    steps = table.with_columns(ms=(pl.col("end_ns") - pl.col("mark_ns")) / MS).collect()
    longest = steps.filter(phase="clean")["ms"].max()
    seen = steps.filter(pl.col("phase").is_in(PHASES)).sort("ms", descending=True)
    least = max(LONG * typical, LIKE * float(longest or 0.0))  # type: ignore[arg-type]
    if longest is None or seen.is_empty() or seen["ms"][0] < least:
        raise UnknownSignalError(NONE)
    step, others = seen.row(0, named=True), seen.tail(-1)
    copied = [_copied(recorded, one) for one in others.iter_rows(named=True)]
    count, size = _copied(recorded, step)
    return Rare(
        step["ms"],
        count,
        float(pl.Series([number for number, _ in copied] or [0]).median() or 0.0),  # type: ignore[arg-type]
        size,
        _waits(recorded, step),
        _source(recorded, step),
    )


def _during(rows: pl.DataFrame, step: dict) -> pl.DataFrame:
    return rows.filter(pl.col("start_ns").is_between(step["mark_ns"], step["end_ns"]))


def _copied(recorded: Recorded, step: dict) -> tuple[float, float]:
    """Copies from the device, and their bytes."""
    rows = _during(recorded.kernels.filter(pl.col("direction").str.starts_with("DtoH")), step)
    return float(rows.height), float(rows["bytes"].sum() or 0)


def _waits(recorded: Recorded, step: dict) -> dict[str, float]:
    rows = _during(recorded.store.table("waits", recorded.account.rank).collect(), step)
    rows = rows.with_columns(pl.col("cause").replace(causes.ALIASES))
    total = rows.group_by("cause").agg((pl.col("end_ns") - pl.col("start_ns")).sum() / MS)
    return {cause: float(ms) for cause, ms in total.iter_rows()}


def _source(recorded: Recorded, step: dict) -> str | None:
    """Where the program spent it, by its outermost ops."""
    ops = _during(recorded.ops.filter(pl.col("kind") == "op"), step).drop_nulls("source")
    by_line = ops.group_by("source").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    return by_line.sort("ns", "source", descending=[True, False])["source"].first()  # type: ignore[return-value]
