"""Match kernels of bursts without shapes with the ops at the same position of a step recorded with shapes.

Steps run from mark to mark. The first match is of complete steps: the same kernels with the same launch
shapes, launched in the same order on each thread. If no step matches completely, the k-th of n launches of a
kernel matches a step that also has n of them. A position is ambiguous if steps have different shapes there.
Kernels with other launch shapes show that a step's inputs have other sizes. There, kernels with equal launch
shapes match only if they take as long, because they may have other sizes too.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.causes import STEPS
from fathom.analysis.columns import filled
from fathom.analysis.work.registry import NO_SHAPES
from fathom.analysis.work.tree import Flags, Rows, signatures
from fathom.sounding import RESIZED, SCATTER, SCATTER_NS

_MARK = rf"^fathom\.mark#|{STEPS}"
_KERNEL = ["name", "grid", "block"]
UNMATCHED = "no step recorded with shapes has this kernel at this place"
AMBIGUOUS = "steps with the same kernels had different shapes"
OTHER_SIZES = "steps with shapes had inputs of other sizes"
PARTIAL = "only some kernels of the op were matched"


def owners(
    ops: pl.DataFrame,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    launch: Rows,
    owner: Rows,
    where: Flags,
    marks: Rows,
) -> pl.DataFrame:
    """Return kernel, owner, instance (one per step) and why of the kernels in the mask `where`."""
    placed = _places(launches, kernels, launch, owner, where, marks)
    model = _model(ops, placed.filter(~pl.col("wanted")))
    wanted = placed.filter("wanted")
    if not model.height:
        return wanted.select(
            "kernel", pl.lit(None).alias("owner"), "instance", pl.lit(NO_SHAPES).alias("why")
        )
    by_step = _agreed(model, ["sequence", "place"]).rename({"owner": "exact", "alike": "exact_alike"})
    by_kernel = _agreed(model, ["thread", "key", "n", "k"])
    matched = wanted.drop("owner").join(by_step, on=["sequence", "place"], how="left")
    matched = matched.join(by_kernel, on=["thread", "key", "n", "k"], how="left", nulls_equal=True)
    matched = matched.with_columns(
        owner=pl.coalesce("exact", "owner"), alike=pl.coalesce("exact_alike", "alike")
    )
    return _complete(_with_sizes(matched, model), model)


def _with_sizes(matched: pl.DataFrame, model: pl.DataFrame) -> pl.DataFrame:
    """Return the matches with a mask `resized`: matched by kernel, in a step with inputs of other sizes."""
    of_kernel = ["thread", "key", "n"]
    lasts = model.group_by("instance", *of_kernel).agg(pl.col("lasts").sum())
    usual = lasts.group_by(of_kernel).agg(usual=pl.col("lasts").median())
    other = pl.col("owner").is_null() & pl.col("named").is_in(model["named"].unique().implode())
    now = pl.col("lasts").sum().over("instance", *of_kernel)
    scatter = pl.max_horizontal(SCATTER * pl.col("usual"), SCATTER_NS * pl.col("n"))
    return matched.join(usual, on=of_kernel, how="left", nulls_equal=True).with_columns(
        resized=pl.col("exact").is_null()
        & (other.mean().over("instance") > RESIZED)
        & ((now - pl.col("usual")).abs() > scatter)
    )


def _places(
    launches: pl.DataFrame, kernels: pl.DataFrame, launch: Rows, owner: Rows, where: Flags, marks: Rows
) -> pl.DataFrame:
    """Return each kernel's step (`instance`), place in it, and number k of n launches of the same kernel."""
    calls = launches.select("thread", called="start_ns").with_row_index("launch")
    frame = (
        kernels.select("phase", "burst", "start_ns", "end_ns", *_KERNEL)
        .with_row_index("kernel")
        .with_columns(
            pl.col("kernel").cast(pl.Int64),
            launch=pl.Series(launch),
            owner=pl.Series(owner),
            wanted=pl.Series(where),
            key=pl.struct(_KERNEL).hash(),
            named=pl.col("name").hash(),
            lasts=pl.col("end_ns") - pl.col("start_ns"),
        )
        .join(calls.with_columns(pl.col("launch").cast(pl.Int64)), on="launch", how="left")
        .with_columns(called=pl.coalesce("called", "start_ns"))
        .drop(*_KERNEL, "end_ns")
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
    """Return the starts of steps in ns: the marks among the ops, or else those of `steps` (mark_ns)."""
    begins = ops["start_ns"].filter(filled(ops["name"], "").str.contains(_MARK))
    if begins.is_empty() and steps is not None:
        begins = steps["mark_ns"].drop_nulls()
    return np.sort(begins.to_numpy())


def _model(ops: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of the steps with shapes, their owners, and a hash of each owner's call."""
    known = placed.filter(pl.col("owner") >= 0)
    return known.with_columns(call=signatures(ops, known["owner"].to_numpy()))


def _agreed(model: pl.DataFrame, at: list[str]) -> pl.DataFrame:
    """Return the owner at each position, and the number of distinct calls that steps have there."""
    first = (
        pl.col("owner").sort_by("instance").first()
    )  # from a single step, so that the kernels of an op keep one owner
    return model.group_by(at).agg(owner=first, alike=pl.col("call").n_unique())


def _complete(matched: pl.DataFrame, model: pl.DataFrame) -> pl.DataFrame:
    """Return the matches without ambiguous ones, and without ops that have unmatched kernels."""
    sizes = model.group_by("owner").agg(size=pl.len())
    matched = matched.join(sizes, on="owner", how="left").with_columns(
        same=(~pl.col("resized")).sum().over("instance", "owner") == pl.col("size")
    )
    why = (
        pl.when(pl.col("owner").is_null())
        .then(pl.lit(UNMATCHED))
        .when(pl.col("alike") > 1)
        .then(pl.lit(AMBIGUOUS))
        .when("resized")
        .then(pl.lit(OTHER_SIZES))
        .when(~pl.col("same"))
        .then(pl.lit(PARTIAL))
    )
    return matched.with_columns(why=why.otherwise(None).cast(pl.String)).select(
        "kernel",
        owner=pl.when(pl.col("why").is_null()).then(pl.col("owner")),
        instance="instance",
        why="why",
    )
