"""The signal of keys and values that are copied for each head of queries."""

from __future__ import annotations

from math import prod

import polars as pl
from msgspec.structs import replace

from fathom.analysis import CPU
from fathom.diagnosis.signals.kernels import work as device_work
from fathom.diagnosis.signals.operations import work_by_shapes
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Work
from fathom.diagnosis.signals.shapes import shapes_of
from fathom.diagnosis.signals.value import most_common, signal

ATTENTION, EXPAND, COPY = "aten::scaled_dot_product_attention", "aten::expand", "aten::copy_"
GROUP_AXIS, AXES, MASK = 2, 5, 3  # of the expanded tensor; the fourth argument of the attention
Shape = tuple[int, ...]


@signal("kernels.repeated_heads", "ms per step")
def repeated_heads(recorded: Recorded) -> list[Work]:
    """Return copies of keys and values that repeat each head for a group of heads of queries."""
    ops = recorded.ops.filter(kind="op")
    shaped = ops.filter(pl.col("shapes").is_not_null())
    if shaped.is_empty():
        raise UnknownSignalError("shapes were not recorded")
    names = shaped.filter(pl.col("name").is_in([ATTENTION, EXPAND])).select("name", "shapes").unique()
    calls = [(name, shapes_of(text)) for name, text in names.iter_rows()]
    single = {tuple(sizes[0]) for name, sizes in calls if name == EXPAND and sizes}
    heads = {tuple(sizes[1]) for name, sizes in calls if name == ATTENTION and not _masked(sizes)}
    if not heads:
        return []
    on_cpu = recorded.device.device == CPU
    works = work_by_shapes(recorded) if on_cpu else device_work(recorded)
    copies = [work for work in works if work.op == COPY and work.sizes and _repeats(work, single, heads)]
    if not on_cpu:
        return copies
    attributed = ops.filter(phase="attribution", name=COPY)
    return [replace(work, source=_line(attributed, work)) for work in copies]


def _line(ops: pl.DataFrame, work: Work) -> str | None:
    return most_common(ops.filter(shapes=work.shapes)["ran"])


def _masked(sizes: list[list[int]]) -> bool:
    """Return whether the attention has a mask, for which not all fused kernels share heads."""
    return len(sizes) <= MASK or bool(sizes[MASK])


def _repeats(work: Work, single: set[Shape], heads: set[Shape]) -> bool:
    """Return whether the copy is of an expanded tensor, and attention reads as many heads as it makes."""
    shape = tuple(work.sizes[0])
    if len(shape) != AXES or shape[GROUP_AXIS] == 1:
        return False
    before = (*shape[:GROUP_AXIS], 1, *shape[GROUP_AXIS + 1 :])
    merged = (shape[0], prod(shape[1 : GROUP_AXIS + 1]), *shape[GROUP_AXIS + 1 :])
    return before in single and merged in heads
