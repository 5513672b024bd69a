"""A rare long step that was recorded in detail, and how it differs from other steps."""

from __future__ import annotations

import polars as pl

from fathom.analysis.entries import ALIASES
from fathom.diagnosis.signals.recorded import PHASES, RAN, Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Rare
from fathom.diagnosis.signals.step import typical_ms
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

LONG = 3.0  # times a typical step
LIKE = 0.5  # of the longest clean step: a step this long is one of the rare ones
SEEN = [*PHASES, "slow"]
NONE = "none of the rare long steps was recorded in detail"
SHORTER = "the longest step recorded in detail took {seen:.1f} ms, the rare long ones up to {rare:.1f} ms"


@signal("step.rare", "ms")
def rare(recorded: Recorded) -> Rare:
    """The longest of these steps that was recorded in detail, because it was slow or by chance."""
    typical = typical_ms(recorded)
    if typical is None:
        raise UnknownSignalError("no clean steps were recorded")
    table = recorded.store.table("steps", recorded.account.rank).filter(pl.col("parent").is_null())
    steps = table.with_columns(ms=(pl.col("end_ns") - pl.col("mark_ns")) / NS_PER_MS).collect()
    longest = steps.filter(phase="clean")["ms"].max()
    seen = steps.filter(pl.col("phase").is_in(SEEN)).sort("ms", descending=True)
    least = max(LONG * typical, LIKE * float(longest or 0.0))  # type: ignore[arg-type]
    if longest is None or seen.is_empty():
        raise UnknownSignalError(NONE)
    if seen["ms"][0] < least:
        slow = seen.filter(phase="slow").height
        raise UnknownSignalError(SHORTER.format(seen=seen["ms"][0], rare=longest) if slow else NONE)
    step, others = seen.row(0, named=True), seen.tail(-1)
    copies = _rows(recorded, "kernels").filter(
        pl.col("direction").str.starts_with("DtoH"), pl.col("device").eq_missing(recorded.index)
    )
    copied = [_copied(copies, work) for work in others.iter_rows(named=True)]
    count, size = _copied(copies, step)
    return Rare(
        step["ms"],
        count,
        float(pl.Series([number for number, _ in copied] or [0]).median() or 0.0),  # type: ignore[arg-type]
        size,
        _waits(recorded, step),
        _source(recorded, step),
    )


def _rows(recorded: Recorded, name: str) -> pl.DataFrame:
    """Rows of all phases that recorded steps in detail."""
    return recorded.store.table(name, recorded.account.rank).filter(pl.col("phase").is_in(SEEN)).collect()


def _during(rows: pl.DataFrame, step: dict) -> pl.DataFrame:
    return rows.filter(pl.col("start_ns").is_between(step["mark_ns"], step["end_ns"]))


def _copied(copies: pl.DataFrame, step: dict) -> tuple[float, float]:
    """Number of copies from the device, and their bytes."""
    rows = _during(copies, step)
    return float(rows.height), float(rows["bytes"].sum() or 0)


def _waits(recorded: Recorded, step: dict) -> dict[str, float]:
    rows = _during(recorded.store.table("waits", recorded.account.rank).collect(), step)
    rows = rows.with_columns(pl.col("cause").replace(ALIASES))
    total = rows.group_by("cause").agg((pl.col("end_ns") - pl.col("start_ns")).sum() / NS_PER_MS)
    return {cause: float(ms) for cause, ms in total.iter_rows()}


def _source(recorded: Recorded, step: dict) -> str | None:
    """The program's line with most of the step's time, by its outermost ops."""
    ops = _during(_rows(recorded, "ops").filter(pl.col("kind") == "op"), step).drop_nulls("source")
    by_line = ops.group_by(source=RAN).agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    return by_line.sort("ns", "source", descending=[True, False])["source"].first()  # type: ignore[return-value]
