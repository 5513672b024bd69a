"""Gradients that no optimizer uses, and those of embedding tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import msgspec
import polars as pl
from msgspec.structs import replace

from fathom.analysis import CPU
from fathom.analysis.causes import AUTOGRAD, OPTIMIZER_STEP
from fathom.analysis.intervals import spans
from fathom.analysis.work import Call, UnknownWorkError, parse_call
from fathom.diagnosis.signals.kernels import linked
from fathom.diagnosis.signals.kernels import work as device_work
from fathom.diagnosis.signals.operations import work_by_shapes, work_within
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Tables, Work
from fathom.diagnosis.signals.shapes import lists_of, shapes_of
from fathom.diagnosis.signals.value import signal

ACCUMULATE = "torch::autograd::AccumulateGrad"
TAKES = re.compile(r"aten::(_fused_(adamw?|sgd|adagrad)_|_foreach_addcdiv_)$")  # parameters first, each once

Shapes = Counter[tuple[int, ...]]
ROWS = {
    "aten::embedding_dense_backward": 2,
    "aten::_embedding_bag_dense_backward": 5,
}  # argument: how many rows
ZEROS = re.compile(r"aten::_?embedding_(bag_)?dense_backward > .*aten::(zero_|fill_)$")
PRODUCT = re.compile(r"aten::(mm|addmm|bmm|baddbmm|mv)$")
LOOPS = {  # ops of torch's optimizers without foreach: each parameter is the first argument of one
    "SGD": ("aten::add_", "aten::mul_"),  # momentum adds to its buffer too, after a multiplication
    **dict.fromkeys(("Adam", "AdamW", "RMSprop", "Adagrad"), ("aten::addcdiv_", "")),
}

Shape = tuple[int, ...]  # of a table: rows and width


class Unused(msgspec.Struct, frozen=True):
    """Gradients computed but unused, the number of used ones, and the work after the last used one."""

    unused: int
    used: int
    works: list[Work]


class Pass(msgspec.Struct, frozen=True):
    """A backward pass: its start and end, and the gradients of parameters with their times."""

    start_ns: int
    end_ns: int
    gradients: list[tuple[int, tuple[int, ...]]]

    @property
    def shapes(self) -> Shapes:
        return Counter(shape for _, shape in self.gradients)


@signal("kernels.unused_gradients", "ms per step")
def unused_gradients(recorded: Recorded) -> Unused:
    """Compare the shapes of gradients with those that the optimizer uses. If only some gradients of a shape
    are used, they are assumed to be the first of the backward pass, nearest to the loss.
    """
    ops = recorded.ops.filter(phase="attribution").with_row_index("place")
    trained = _trained(ops)
    if not trained:
        raise UnknownSignalError("the tensors that the optimizer updates were not recorded")
    passes = passes_of(ops)
    surplus = Counter() if _unlike(passes) else passes[0].shapes - trained
    if not surplus or trained - passes[0].shapes or _all_again(passes[0].shapes, trained):
        return Unused(0, sum(trained.values()), [])
    lasts = [(last_used(backward, trained), backward.end_ns) for backward in passes]
    after = (
        work_within(recorded, ops, spans([start for start, _ in lasts], [end for _, end in lasts]))
        if recorded.device.device == CPU
        else _after(recorded, lasts)
    )
    return Unused(sum(surplus.values()), sum(trained.values()), after)


@signal("kernels.gradients")
def gradients(recorded: Recorded) -> Shapes:
    """Return a backward pass's gradients of parameters by shape. Raises UnknownSignalError without one."""
    passes = passes_of(recorded.ops.filter(phase="attribution"))
    if not passes:
        raise UnknownSignalError("no backward pass was recorded with shapes")
    return passes[0].shapes


def _unlike(passes: list[Pass]) -> bool:
    """Return whether there are no passes, or passes with different gradients, as for several losses."""
    return not passes or any(backward.shapes != passes[0].shapes for backward in passes)


def _all_again(shapes: Shapes, trained: Shapes) -> bool:
    """Return whether each shape occurs n times more often, for a whole n, in directly following passes."""
    return shapes.keys() == trained.keys() and len({shapes[shape] / trained[shape] for shape in shapes}) == 1


def _trained(ops: pl.DataFrame) -> Shapes:
    """Return the shapes of the tensors that optimizers update in one step."""
    taken: Shapes = Counter()
    stepped = ops.filter(pl.col("name").str.starts_with(OPTIMIZER_STEP))
    for (text,) in ops.filter(pl.col("name").str.contains(TAKES.pattern)).select("shapes").iter_rows():
        taken.update(tuple(shape) for shape in lists_of(text))
    repeats = max(stepped.height // max(stepped["name"].n_unique(), 1), 1)
    return Counter({shape: count // repeats for shape, count in (taken or _looped(ops, stepped)).items()})


def _looped(ops: pl.DataFrame, stepped: pl.DataFrame) -> Shapes:
    """Return the shapes of the tensors that optimizers update one by one; none if one is not of LOOPS."""
    taken: Shapes = Counter()
    for (name,), mine in stepped.group_by("name"):
        optimizer = str(name).removeprefix(OPTIMIZER_STEP).partition(".")[0]
        added, subtracted = LOOPS.get(optimizer, ("", ""))
        if not added:
            return Counter()
        beneath = ops.filter(pl.col("parent").is_in(mine["id"].implode()))
        taken += _first(beneath, added) - _first(beneath, subtracted)
    return taken


def _first(ops: pl.DataFrame, name: str) -> Shapes:
    """Return the shapes of the first arguments of an op."""
    texts = ops.filter(name=name)["shapes"]
    return Counter(tuple(shape) for text in texts for shape in shapes_of(text)[:1])


def passes_of(ops: pl.DataFrame) -> list[Pass]:
    """Return the stretches of autograd functions between ops that the program called itself."""
    outer = ops.filter(pl.col("kind") == "op", pl.col("parent").is_null()).sort("start_ns")
    of_engine = pl.col("name").str.starts_with(AUTOGRAD)
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
    """Return the time at which the pass has computed the last gradient that the optimizer uses."""
    left, last = Counter(trained), backward.start_ns
    for at, shape in backward.gradients:
        if left[shape] > 0:
            left[shape] -= 1
            last = at
    return last


def _after(recorded: Recorded, stretches: list[tuple[int, int]]) -> list[Work]:
    """Return the device work of backward functions that started in any of these stretches."""
    rows = linked(recorded).filter(pl.col("owner") >= 0)
    times = recorded.ops.select("start_ns", "phase")[rows["owner"]]
    rows = rows.with_columns(at=times["start_ns"], of=times["phase"])
    within = pl.any_horizontal([pl.col("at").is_between(start, end) for start, end in stretches])
    behind = pl.col("path").list.first().str.starts_with(AUTOGRAD)
    rows = rows.filter(pl.col("of") == "attribution", within, behind)
    groups = rows.group_by("entry", "label", "path", maintain_order=True).agg(pl.col("ns").sum(), pl.len())
    return [
        Work(entry, label, recorded.per_step_ms(ns), count / recorded.steps, tuple(path))
        for entry, label, path, ns, count in groups.iter_rows()
    ]


@signal("kernels.tables", "ms per step")
def tables(recorded: Recorded) -> list[Tables]:
    """Return embedding tables by shape, with the work over all of their rows, costliest shape first.

    Tables that are also operands of a matmul, such as a tied head, have dense gradients anyway and are left
    out. Raises UnknownSignalError if shapes, the backward pass or values were not recorded.
    """
    ops = recorded.ops.with_row_index("place").filter(phase="attribution")
    lookups, passes = _lookups(ops), passes_of(ops)
    if not passes:
        raise UnknownSignalError("no backward pass was recorded with shapes")
    if not lookups:
        return []
    gradients, multiplied = passes[0].shapes, _multiplied(ops, len(passes))
    steps = _steps(ops) or len(passes)
    works = work_by_shapes(recorded) if recorded.device.device == CPU else device_work(recorded)
    by_shape = []
    for shape, count in lookups.items():
        parameters = gradients[shape] - multiplied[shape]
        if parameters > 0:
            passing = list(_passing(works, shape, parameters, gradients))
            rows, width = shape
            by_shape.append(Tables(rows, width, parameters, count / steps, passing, *_where(ops, shape)))
    return sorted(by_shape, key=lambda table: -table.ms)


def _lookups(ops: pl.DataFrame) -> Counter[Shape]:
    """Return the number of indices whose gradients were computed, by the shape of their table."""
    rows = ops.filter(pl.col("name").is_in(list(ROWS)))
    if rows["shapes"].null_count() == rows.height and (
        rows.height or ops["shapes"].null_count() == ops.height
    ):
        raise UnknownSignalError("shapes were not recorded")
    counts: Counter[Shape] = Counter()
    for name, shapes, dtypes, values in rows.select("name", "shapes", "dtypes", "values").iter_rows():
        try:
            call = parse_call(name, shapes, dtypes, values)
            counts[_table_of(call)] += call.tensor(1).numel
        except (UnknownWorkError, ValueError, TypeError) as why:
            raise UnknownSignalError(f"the size of a table is unknown: {why}") from why
    return counts


def _table_of(call: Call) -> Shape:
    return call.ints(ROWS[call.name])[0], call.tensor(0).shape[-1]


def _steps(ops: pl.DataFrame) -> int:
    """Return the optimizer steps that were recorded with shapes."""
    stepped = ops.filter(pl.col("name").str.starts_with(OPTIMIZER_STEP))
    return stepped.height // max(stepped["name"].n_unique(), 1)


def _multiplied(ops: pl.DataFrame, passes: int) -> Counter[Shape]:
    """Return the number of matmuls in the forward pass with an operand of each shape, transposed or not."""
    counts: Counter[Shape] = Counter()
    behind = pl.col("parent").is_in(ops.filter(pl.col("name").str.contains("Backward"))["id"].implode())
    for (text,) in (
        ops.filter(pl.col("name").str.contains(PRODUCT.pattern), ~behind).select("shapes").iter_rows()
    ):
        for shape in {tuple(shape) for shape in shapes_of(text)}:
            counts.update({shape, shape[::-1]})
    return Counter({shape: -(-count // passes) for shape, count in counts.items()})


def _passing(works: list[Work], shape: Shape, parameters: int, gradients: Counter[Shape]) -> Iterator[Work]:
    """Return the work that zeroes gradients and that of the optimizer, by the tables' share of elements."""
    numbers = parameters * prod(shape)
    of_shape = parameters / gradients[shape]
    every = sum(count * prod(sizes) for sizes, count in gradients.items())
    for work in works:
        if ZEROS.search(work.path):
            share = float(shape in map(tuple, work.sizes))
        elif OPTIMIZER_STEP in work.path:
            share = _share(work, shape, numbers, of_shape, every)
        else:
            continue
        if share > 0:
            yield replace(work, ms=share * work.ms, count=share * work.count)


def _share(work: Work, shape: Shape, numbers: int, of_shape: float, every: int) -> float:
    """Return the tables' share of an optimizer op on a tensor, a list of them, or unknown shapes."""
    if listed := [tuple(sizes) for sizes in lists_of(work.shapes)]:
        return of_shape * listed.count(shape) * prod(shape) / max(sum(map(prod, listed)), 1)
    if sizes := next((tuple(sizes) for sizes in work.sizes if sizes), None):
        return of_shape * (sizes == shape)
    return numbers / every if "_foreach_" in work.path or "_fused_" in work.path else 0.0


def _where(ops: pl.DataFrame, shape: Shape) -> tuple[str | None, str | None]:
    """Return the line and module of a lookup in one of the tables."""
    for text, source, module in (
        ops.filter(pl.col("name").str.contains(r"^aten::(_?embedding|_embedding_bag)$"))
        .select("shapes", pl.coalesce("ran", "source"), "module")
        .iter_rows()
    ):
        if list(shape) in shapes_of(text):
            return source, module
    return None, None
