"""Kernels that sometimes take much longer, because another process had the device."""

from __future__ import annotations

import polars as pl

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals.kernels import timed
from fathom.diagnosis.signals.recorded import Recorded
from fathom.diagnosis.signals.rows import Stretched
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

SLICE_NS = 500_000  # time slices are one or two milliseconds; kernels scatter by less than this
TIMES = 1.3  # times its usual duration
ENOUGH = 3  # launches, to know the usual duration


@signal("device.stretched", "ms per step")
def stretched(recorded: Recorded) -> Stretched:
    """Kernels longer than their family in the same step, and than the same launch in other steps.

    A family may do work of several sizes within one step, and sizes may change between steps: either is
    no turn of another process. All recorded steps count, those too that the ledger leaves out.
    """
    rows = timed(recorded).filter(pl.col("entry") == Entry.COMPUTE).sort("start_ns")
    rows = rows.with_columns(window=recorded.window(rows, used=False)).filter(pl.col("window") >= 0, _alone())
    steps = rows["window"].n_unique() or 1
    rows = rows.with_columns(place=pl.int_range(pl.len()).over("window", "label"))
    beside = [_usual("window", "label"), _usual("place", "label")]
    rows = rows.with_columns(
        usual=pl.max_horizontal(*beside), known=pl.all_horizontal(*map(pl.Expr.is_not_null, beside))
    )
    more = pl.col("ns") - pl.col("usual")
    some = rows.filter("known", more >= SLICE_NS, pl.col("ns") >= TIMES * pl.col("usual"))
    return Stretched(
        float(some.select(more.sum()).item() or 0) / steps / NS_PER_MS,
        some.height / steps,
        some["label"].n_unique(),
    )


def _usual(*among: str) -> pl.Expr:
    return pl.when(pl.len().over(*among) >= ENOUGH).then(pl.col("ns").quantile(0.25, "lower").over(*among))


def _alone() -> pl.Expr:
    """Kernels that ran without another kernel beside them."""
    before, after = pl.col("end_ns").cum_max().shift(1), pl.col("start_ns").shift(-1)
    return (pl.col("start_ns") >= before).fill_null(True) & (after >= pl.col("end_ns")).fill_null(True)
