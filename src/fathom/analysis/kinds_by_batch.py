"""Split steps of one kind by the size of their batch, if the program alternates between two or three sizes.

The figures of a step are medians and means over steps of one kind. If half of the steps take batches of 4
samples and half take 64, neither is a step that exists. The sizes are recorded, so each step's kind is known.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.kinds_by_work import MOST_KINDS, RATIO, TWICE, differ, ran
from fathom.analysis.steps import EPOCH_START

SAMPLES = "+{} samples"  # suffix of steps with batches of another size: `train+4 samples`
LEAST = 0.1  # of the steps: rarer sizes are those of last batches
IN_ORDER = 0.75  # least share of pairs: sizes are known, so times need not show which step is which


def split_by_batch(steps: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return `steps`, with kinds like `train+4 samples` for batches of another size than the usual one's.

    The size with the most time is the usual one. `work` is that of `split_by_work`. Sizes are kinds only if
    the times of their steps differ clearly. On a device they are only split if the device's bounds of each
    step are known, because the host's marks do not give the lengths of steps that take turns.
    """
    complete = _complete(steps)
    for (kind,), mine in complete.group_by("kind", maintain_order=True):
        if isinstance(kind, str) and mine["samples"].null_count() == 0:
            steps = _renamed(steps, kind, _others(mine, work))
    return steps


def _complete(steps: pl.DataFrame) -> pl.DataFrame:
    timed = pl.col("phase").is_in(["clean", "timeline"]) & (pl.col("end_ns") > pl.col("mark_ns"))
    return steps.filter(pl.col("parent").is_null(), timed)


def _others(rows: pl.DataFrame, work: pl.DataFrame) -> list[int]:
    """Return the sizes other than the usual one; [] if the steps are of one kind."""
    sizes = sorted(rows["samples"].unique().to_list())
    counts = dict(rows["samples"].value_counts().iter_rows())
    common = [size for size in sizes if counts[size] >= max(LEAST * rows.height, TWICE)]
    if not 2 <= len(common) <= MOST_KINDS:
        return []
    if "launched" in work.columns and not _bounded(rows):
        return []
    spent = _spent(rows, work, common)
    if not all(differ(spent[first], spent[second], IN_ORDER) for first, second in combinations(common, 2)):
        return []
    usual = max(common, key=lambda size: float(np.mean(spent[size])) * counts[size])
    return [size for size in common if size != usual]


def _bounded(rows: pl.DataFrame) -> bool:
    clean = rows.filter(phase="clean")
    return clean["device_ns"].null_count() + clean["device_end_ns"].null_count() == 0


def _spent(rows: pl.DataFrame, work: pl.DataFrame, sizes: list[int]) -> dict[int, Array]:
    """Return times of steps by size: the device's in the timeline, else the host's in the clean phase."""
    timeline = rows.filter(phase="timeline").sort("mark_ns")
    times = ran(timeline, work)[1]
    clean = rows.filter(phase="clean")
    if "launched" not in work.columns and not clean.is_empty():
        timeline, times = clean, (clean["end_ns"] - clean["mark_ns"]).to_numpy()
    which = timeline["samples"].to_numpy()
    return {size: times[which == size] for size in sizes}


def _renamed(steps: pl.DataFrame, kind: str, others: list[int]) -> pl.DataFrame:
    if not others:
        return steps
    other = (pl.col("kind") == kind) & pl.col("parent").is_null() & pl.col("samples").is_in(others)
    name = pl.lit(kind) + pl.format(SAMPLES, "samples")
    return steps.with_columns(kind=pl.when(other).then(name).otherwise("kind"))


def mixed(steps: pl.DataFrame, kind: str) -> str:
    """Return that the steps of a kind take batches of very different sizes; "" if they do not."""
    own = pl.col("kind").str.strip_suffix(EPOCH_START) == kind.removesuffix(EPOCH_START)
    sizes = _complete(steps).filter(own)["samples"].drop_nulls()
    low, high = sizes.quantile(LEAST), sizes.quantile(1 - LEAST)
    if low is None or high is None or high < RATIO * low:
        return ""
    return (
        f"the batches of these steps have {low:,.0f} to {high:,.0f} samples, so the step is a mix of them; "
        "fathom.step(kind=...) separates steps"
    )
