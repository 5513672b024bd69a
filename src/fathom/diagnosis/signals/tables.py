"""Embedding tables with dense gradients: every step zeroes and updates rows that it never read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

import polars as pl
from msgspec.structs import replace

from fathom.analysis import CPU
from fathom.analysis.work import Call, UnknownWorkError, parse_call
from fathom.diagnosis.signals.gradients import passes_of
from fathom.diagnosis.signals.kernels import work as device_work
from fathom.diagnosis.signals.operations import work_by_shapes
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Tables, Work
from fathom.diagnosis.signals.shapes import lists_of, shapes_of
from fathom.diagnosis.signals.value import signal

ROWS = {
    "aten::embedding_dense_backward": 2,
    "aten::_embedding_bag_dense_backward": 5,
}  # argument: how many rows
ZEROS = re.compile(r"aten::_?embedding_(bag_)?dense_backward > .*aten::(zero_|fill_)$")
PRODUCT = re.compile(r"aten::(mm|addmm|bmm|baddbmm|mv)$")
OPTIMIZER = "Optimizer.step#"

Shape = tuple[int, ...]  # of a table: rows and width


@signal("kernels.tables", "ms per step")
def tables(recorded: Recorded) -> list[Tables]:
    """Tables by shape, with the work that passes over all of their rows, the costliest shape first.

    A table that a product multiplies with as well, as a tied head does, has a dense gradient anyway and is
    left out. Raises UnknownSignalError where no shapes, no backward pass or no values were recorded.
    """
    ops = recorded.ops.with_row_index("place").filter(phase="attribution")
    lookups, passes = _lookups(ops), passes_of(ops)
    if not passes:
        raise UnknownSignalError("no backward pass was recorded with shapes")
    if not lookups:
        return []
    gradients, multiplied = passes[0].shapes, _multiplied(ops, len(passes))
    steps = _steps(ops) or len(passes)
    works = work_by_shapes(recorded, ops) if recorded.device.device == CPU else device_work(recorded)
    by_shape = []
    for shape, count in lookups.items():
        parameters = gradients[shape] - multiplied[shape]
        if parameters > 0:
            passing = list(_passing(works, shape, parameters, gradients))
            rows, width = shape
            by_shape.append(Tables(rows, width, parameters, count / steps, passing, *_where(ops, shape)))
    return sorted(by_shape, key=lambda table: -table.ms)


def _lookups(ops: pl.DataFrame) -> Counter[Shape]:
    """Number of indices whose gradients were computed, by the shape of their table."""
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
            raise UnknownSignalError(f"the size of a table is not known: {why}") from why
    return counts


def _table_of(call: Call) -> Shape:
    return call.ints(ROWS[call.name])[0], call.tensor(0).shape[-1]


def _steps(ops: pl.DataFrame) -> int:
    """Optimizer steps that were recorded with shapes."""
    stepped = ops.filter(pl.col("name").str.starts_with(OPTIMIZER))
    return stepped.height // max(stepped["name"].n_unique(), 1)


def _multiplied(ops: pl.DataFrame, passes: int) -> Counter[Shape]:
    """Number of products of a forward pass that have an operand of each shape, transposed or not."""
    counts: Counter[Shape] = Counter()
    behind = pl.col("parent").is_in(ops.filter(pl.col("name").str.contains("Backward"))["id"].implode())
    for (text,) in (
        ops.filter(pl.col("name").str.contains(PRODUCT.pattern), ~behind).select("shapes").iter_rows()
    ):
        for shape in {tuple(shape) for shape in shapes_of(text)}:
            counts.update({shape, shape[::-1]})
    return Counter({shape: -(-count // passes) for shape, count in counts.items()})


def _passing(works: list[Work], shape: Shape, parameters: int, gradients: Counter[Shape]) -> Iterator[Work]:
    """Work that zeroes the gradients, and the optimizer's work, by the tables' share of the elements."""
    numbers = parameters * prod(shape)
    of_shape = parameters / gradients[shape]
    every = sum(count * prod(sizes) for sizes, count in gradients.items())
    for work in works:
        if ZEROS.search(work.path):
            share = float(shape in map(tuple, work.sizes))
        elif OPTIMIZER in work.path:
            share = _share(work, shape, numbers, of_shape, every)
        else:
            continue
        if share > 0:
            yield replace(work, ms=share * work.ms, count=share * work.count)


def _share(work: Work, shape: Shape, numbers: int, of_shape: float, every: int) -> float:
    """The tables' share of an optimizer op over a tensor, a list of tensors, or a list of unknown shapes."""
    if listed := [tuple(sizes) for sizes in lists_of(work.shapes)]:
        return of_shape * listed.count(shape) * prod(shape) / max(sum(map(prod, listed)), 1)
    if sizes := next((tuple(sizes) for sizes in work.sizes if sizes), None):
        return of_shape * (sizes == shape)
    return numbers / every if "_foreach_" in work.path or "_fused_" in work.path else 0.0


def _where(ops: pl.DataFrame, shape: Shape) -> tuple[str | None, str | None]:
    """The line and module of a lookup in such a table."""
    for text, source, module in (
        ops.filter(pl.col("name").str.contains(r"^aten::(_?embedding|_embedding_bag)$"))
        .select("shapes", pl.coalesce("ran", "source"), "module")
        .iter_rows()
    ):
        if list(shape) in shapes_of(text):
            return source, module
    return None, None
