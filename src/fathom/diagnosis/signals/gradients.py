"""Gradients that no optimizer uses, and the backward work done only for them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import polars as pl

from fathom.diagnosis.signals.kernels import linked
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Work
from fathom.diagnosis.signals.shapes import lists_of, shapes_of
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

BACKWARD = "autograd::engine::evaluate_function"
ACCUMULATE = "torch::autograd::AccumulateGrad"
TAKES = re.compile(r"aten::(_fused_(adamw?|sgd|adagrad)_|_foreach_addcdiv_)$")  # parameters first, each once

Shapes = Counter[tuple[int, ...]]


class Unused(msgspec.Struct, frozen=True):
    """Gradients that are computed and not used, how many are used, and the work after the last of these."""

    unused: int
    used: int
    works: list[Work]


class Pass(msgspec.Struct, frozen=True):
    """A backward pass: when it began and ended, and its gradients of parameters, each with its time."""

    start_ns: int
    end_ns: int
    gradients: list[tuple[int, tuple[int, ...]]]

    @property
    def shapes(self) -> Shapes:
        return Counter(shape for _, shape in self.gradients)


@signal("kernels.unused_gradients", "ms per step")
def unused_gradients(recorded: Recorded) -> Unused:
    """By shapes of gradients and of what the optimizer takes. Which of several of one shape it takes is not
    recorded: those that the backward pass comes to first, nearest to the loss."""
    ops = recorded.ops.filter(phase="attribution").with_row_index("place")
    trained = _trained(ops)
    if not trained:
        raise UnknownSignalError("the tensors that the optimizer takes were not recorded")
    passes = passes_of(ops)
    surplus = Counter() if _unlike(passes) else passes[0].shapes - trained
    if not surplus or trained - passes[0].shapes or _all_again(passes[0].shapes, trained):
        return Unused(0, sum(trained.values()), [])
    lasts = [(last_used(backward, trained), backward.end_ns) for backward in passes]
    return Unused(sum(surplus.values()), sum(trained.values()), _after(recorded, lasts))


@signal("kernels.gradients")
def gradients(recorded: Recorded) -> Shapes:
    """Gradients of parameters in one backward pass, by shape. Raises UnknownSignalError without one."""
    passes = passes_of(recorded.ops.filter(phase="attribution"))
    if not passes:
        raise UnknownSignalError("no backward pass was recorded with shapes")
    return passes[0].shapes


def _unlike(passes: list[Pass]) -> bool:
    """None, or of different gradients: several losses, each for its own parameters."""
    return not passes or any(backward.shapes != passes[0].shapes for backward in passes)


def _all_again(shapes: Shapes, trained: Shapes) -> bool:
    """Whether each comes as many times more: passes that follow each other at once, not other parameters."""
    return shapes.keys() == trained.keys() and len({shapes[shape] / trained[shape] for shape in shapes}) == 1


def _trained(ops: pl.DataFrame) -> Shapes:
    """Shapes of the tensors that optimizers update, those of one step."""
    taken: Shapes = Counter()
    steps = ops.filter(pl.col("name").str.starts_with("Optimizer.step#")).height
    for (text,) in ops.filter(pl.col("name").str.contains(TAKES.pattern)).select("shapes").iter_rows():
        taken.update(tuple(shape) for shape in lists_of(text))
    names = ops.filter(pl.col("name").str.starts_with("Optimizer.step#"))["name"].n_unique()
    repeats = max(steps // max(names, 1), 1)
    return Counter({shape: count // repeats for shape, count in taken.items()})


def passes_of(ops: pl.DataFrame) -> list[Pass]:
    """Stretches of the engine's functions between ops that the program called itself."""
    outer = ops.filter(pl.col("kind") == "op", pl.col("parent").is_null()).sort("start_ns")
    of_engine = pl.col("name").str.starts_with(BACKWARD)
    outer = outer.with_columns(stretch=(~of_engine).cum_sum(), engine=of_engine).filter("engine")
    passes = []
    for _, mine in outer.group_by("stretch", maintain_order=True):
        start, end = int(mine["start_ns"].min()), int(mine["end_ns"].max())  # type: ignore[arg-type]
        grads = _gradients(ops, start, end)
        passes += [Pass(start, end, grads)] if grads else []
    return passes


def _gradients(ops: pl.DataFrame, start: int, end: int) -> list[tuple[int, tuple[int, ...]]]:
    mine = ops.filter(pl.col("name") == ACCUMULATE, pl.col("start_ns").is_between(start, end)).sort(
        "start_ns"
    )
    rows: list[tuple[int, Any]] = list(mine.select("end_ns", "shapes").iter_rows())
    return [(at, tuple(shape)) for at, text in rows for shape in shapes_of(text)[:1]]


def last_used(backward: Pass, trained: Shapes) -> int:
    """When the pass has the last gradient that the optimizer takes."""
    left, last = Counter(trained), backward.start_ns
    for at, shape in backward.gradients:
        if left[shape] > 0:
            left[shape] -= 1
            last = at
    return last


def _after(recorded: Recorded, stretches: list[tuple[int, int]]) -> list[Work]:
    """Device work of backward functions that began in any of these stretches."""
    rows = linked(recorded).filter(pl.col("owner") >= 0)
    times = recorded.ops.select("start_ns", "phase")[rows["owner"]]
    rows = rows.with_columns(at=times["start_ns"], of=times["phase"])
    within = pl.any_horizontal([pl.col("at").is_between(start, end) for start, end in stretches])
    behind = pl.col("path").list.first().str.starts_with(BACKWARD)
    rows = rows.filter(pl.col("of") == "attribution", within, behind)
    groups = rows.group_by("entry", "label", "path", maintain_order=True).agg(pl.col("ns").sum(), pl.len())
    return [
        Work(entry, label, ns / recorded.steps / NS_PER_MS, count / recorded.steps, tuple(path))
        for entry, label, path, ns, count in groups.iter_rows()
    ]
