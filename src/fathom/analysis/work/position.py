"""Bursts without shapes: a kernel's op is found at the same position of a step that was recorded with them.

Steps run from mark to mark. First a whole step is compared: the same kernels with the same launch shapes, in
the same order of launches on each thread. Where no step agrees as a whole, the k-th of n launches of a kernel
is taken from a step that has n of them too. Steps that disagree about the shapes at a place decide nothing.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.causes import STEPS
from fathom.analysis.work.registry import NO_SHAPES
from fathom.analysis.work.tree import Flags, Rows, signatures

_MARK = rf"^fathom\.mark#|{STEPS}"
_KERNEL = ["name", "grid", "block"]
UNMATCHED = "no step recorded with shapes has this kernel at this place"
AMBIGUOUS = "steps with the same kernels had different shapes"
PARTIAL = "only some kernels of the op were found again"


def owners(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    launch: Rows,
    owner: Rows,
    where: Flags,
    marks: Rows,
) -> pl.DataFrame:
    """kernel, owner, instance and why of the kernels `where`; each of their steps is one instance."""
    placed = _places(launches, kernels, launch, owner, where, marks)
    model = _model(ops, placed.filter(~pl.col("wanted")))
    wanted = placed.filter("wanted")
    if not model.height:
        return wanted.select(
            "kernel", pl.lit(None).alias("owner"), "instance", pl.lit(NO_SHAPES).alias("why")
        )
    whole = _agreed(model, ["sequence", "place"]).rename({"owner": "exact", "alike": "exact_alike"})
    part = _agreed(model, ["thread", "key", "n", "k"])
    found = wanted.drop("owner").join(whole, on=["sequence", "place"], how="left")
    found = found.join(part, on=["thread", "key", "n", "k"], how="left", nulls_equal=True)
    found = found.with_columns(owner=pl.coalesce("exact", "owner"), alike=pl.coalesce("exact_alike", "alike"))
    return _complete(found, model)


def _places(
    launches: pl.DataFrame, kernels: pl.DataFrame, launch: Rows, owner: Rows, where: Flags, marks: Rows
) -> pl.DataFrame:
    """Each launched kernel's step (`instance`), its place there, and its number among its equals."""
    calls = launches.select("thread", called="start_ns").with_row_index("launch")
    frame = (
        kernels.select("phase", "burst", "start_ns", *_KERNEL)
        .with_row_index("kernel")
        .with_columns(
            pl.col("kernel").cast(pl.Int64),
            launch=pl.Series(launch),
            owner=pl.Series(owner),
            wanted=pl.Series(where),
            key=pl.struct(_KERNEL).hash(),
        )
        .join(calls.with_columns(pl.col("launch").cast(pl.Int64)), on="launch", how="left")
        .with_columns(called=pl.coalesce("called", "start_ns"))
        .drop(_KERNEL)
    )
    step = np.searchsorted(marks, frame["called"].to_numpy(), side="right")
    step_key = ["phase", "burst", "step"]
    frame = frame.with_columns(step=pl.Series(step)).sort(*step_key, "thread", "called", "start_ns")
    frame = frame.with_columns(
        instance=pl.struct(step_key).rle_id().cast(pl.Int64) + 1,
        place=pl.int_range(pl.len()).over(step_key),
        k=pl.int_range(pl.len()).over(*step_key, "thread", "key"),
        n=pl.len().over(*step_key, "thread", "key"),
    )
    return frame.with_columns(sequence=pl.struct("place", "key").hash().implode().hash().over("instance"))


def marks(ops: pl.DataFrame, steps: pl.DataFrame | None) -> Rows:
    """Times at which steps open: of the marks among the ops, else of `steps` (mark_ns)."""
    found = ops["start_ns"].filter(ops["name"].fill_null("").str.contains(_MARK))
    if found.is_empty() and steps is not None:
        found = steps["mark_ns"].drop_nulls()
    return np.sort(found.to_numpy())


def _model(ops: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Kernels of the steps with shapes, their owners, and a number for what each owner was called with."""
    known = placed.filter(pl.col("owner") >= 0)
    return known.with_columns(call=signatures(ops, known["owner"].to_numpy()))


def _agreed(model: pl.DataFrame, at: list[str]) -> pl.DataFrame:
    """The owner at each position and how many different calls the steps have there."""
    first = pl.col("owner").sort_by("instance").first()  # of one step, so that kernels of an op stay together
    return model.group_by(at).agg(owner=first, alike=pl.col("call").n_unique())


def _complete(found: pl.DataFrame, model: pl.DataFrame) -> pl.DataFrame:
    """Refuses what is ambiguous, and ops of which not all kernels came back."""
    sizes = model.group_by("owner").agg(size=pl.len())
    found = found.join(sizes, on="owner", how="left").with_columns(
        same=pl.len().over("instance", "owner") == pl.col("size")
    )
    why = (
        pl.when(pl.col("owner").is_null())
        .then(pl.lit(UNMATCHED))
        .when(pl.col("alike") > 1)
        .then(pl.lit(AMBIGUOUS))
        .when(~pl.col("same"))
        .then(pl.lit(PARTIAL))
    )
    return found.with_columns(why=why.otherwise(None).cast(pl.String)).select(
        "kernel",
        owner=pl.when(pl.col("why").is_null()).then(pl.col("owner")),
        instance="instance",
        why="why",
    )
