"""The signal of loops over the elements of tensors, by sequences of ops that repeat."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace

from fathom.analysis import CPU
from fathom.analysis.columns import filled
from fathom.analysis.intervals import Array, containing, of_rows
from fathom.analysis.work import NONE, below, with_own_time
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.signals.kernels import linked
from fathom.diagnosis.signals.lines import line_in
from fathom.diagnosis.signals.recorded import BACKWARD, Recorded
from fathom.diagnosis.signals.rows import Loop
from fathom.diagnosis.signals.shapes import shapes_of
from fathom.diagnosis.signals.value import most_common, signal
from fathom.units import NS_PER_MS

AGAIN = 16  # iterations without a difference, at least
LONGEST = 64  # ops in an iteration
ELEMENT = r"^aten::(select|slice|unbind|index)$|(Select|Slice|Unbind|Index)Backward0$"
UNBIND = "aten::unbind"
# Reads an element into Python. On a GPU, the host waits for each, which has its own finding.
READ = r"^aten::item$"
# Ops of loops over layers, parameters and ranks, which no larger op replaces, or which have another finding.
LAYERS = (
    r"aten::_?(mm|addmm|bmm|baddbmm|addbmm|addmv|mv|matmul|linear|bilinear|embedding|einsum)|conv|attention"
    r"|lstm|gru|rnn|(layer|batch|group|rms)_norm|_foreach_|_fused_|c10d|nccl|gloo|record_param_comms|Compiled|triton"
    r"|(Mm|Bmm|Mv|Linear|Convolution|Attention|Embedding|LayerNorm|BatchNorm|GroupNorm|RmsNorm)\w*Backward"
)
OTHERS = r"Optimizer\.|DataLoader"  # regions whose loops have other findings
SIMILAR = 2.0  # times as many iterations in the backward pass as in the loop, at most


class Nested(NamedTuple):
    """Ops without an op around them, in order, with their `row`; and for every op, the row of that op."""

    outermost: pl.DataFrame
    top: Array


@signal("host.loops", "ms per step")
def loops(recorded: Recorded) -> list[Loop]:
    """Return loops that call ops on single elements or slices of tensors, longest first."""
    nested = _nested(recorded)
    repeated = _repeated(recorded, nested.outermost)
    iterated = repeated.filter(~pl.col("ahead"))
    bodies = iterated.group_by("body", maintain_order=True).agg(pl.col("name").unique().sort())
    element = f"{ELEMENT}|{READ}" if recorded.device.device == CPU else ELEMENT
    wanted = bodies.filter(pl.col("name").list.eval(pl.element().str.contains(element)).list.any())
    if wanted.is_empty():
        return []
    timed = _timed(recorded, nested.top)
    made = {
        tuple(names): _loop(recorded, nested.top, timed, repeated.filter(body=body))
        for body, names in wanted.iter_rows()
    }
    forward = [loop for names, loop in made.items() if not _backward(names)]
    backward = [loop for names, loop in made.items() if _backward(names)]
    return sorted(_joined(forward, backward), key=lambda loop: -loop.ms)


def _backward(names: tuple[str, ...]) -> bool:
    return any(name.startswith(BACKWARD) for name in names)


def _joined(forward: list[Loop], backward: list[Loop]) -> list[Loop]:
    """Return the loops of the program, each with that of the backward pass with about as many iterations."""
    loops = sorted((loop for loop in forward if loop.iterations), key=lambda loop: -loop.ms)
    left = [loop for loop in backward if loop.iterations]
    for i, loop in enumerate(loops):
        near = min(left, key=lambda other: _ratio(loop, other), default=None)
        if near is not None and _ratio(loop, near) <= SIMILAR:
            left.remove(near)
            loops[i] = _with_backward(loop, near)
    return loops


def _ratio(loop: Loop, other: Loop) -> float:
    return max(loop.iterations, other.iterations) / min(loop.iterations, other.iterations)


def _with_backward(loop: Loop, backward: Loop) -> Loop:
    return replace(
        loop,
        ms=loop.ms + backward.ms,
        count=loop.count + backward.count,
        own=summed([*loop.own.items(), *backward.own.items()]),
        kernels=summed([*loop.kernels.items(), *backward.kernels.items()]),
        launches=loop.launches + backward.launches,
        backward_ms=backward.ms,
    )


def _nested(recorded: Recorded) -> Nested:
    """Return the ops outside of OTHERS; those that hold a LAYER have it as their `layer`."""
    ops, parents = recorded.ops, recorded.parents
    names = filled(ops["name"], "")
    is_op = filled(ops["kind"] == "op", False).to_numpy()
    region = ~is_op & names.str.contains(OTHERS).to_numpy()
    rows = np.arange(len(parents))
    top, above = rows.copy(), parents.copy()
    while len(climbing := np.flatnonzero(above != NONE)):
        caller = above[climbing]
        top[climbing] = np.where(is_op[caller], caller, top[climbing])
        above[climbing] = parents[caller]
    layers = np.zeros(len(parents), bool)
    layers[top[is_op & names.str.contains(LAYERS).to_numpy()]] = True
    columns = ops.select("phase", "burst", "thread", "start_ns", "end_ns", "name", "ran", "shapes")
    columns = columns.with_columns(row=pl.Series(rows), layer=pl.Series(layers))
    outermost = columns.filter(pl.Series(is_op & ~below(parents, region) & (top == rows)))
    return Nested(outermost.sort("phase", "burst", "thread", "start_ns", "row"), top)


def _repeated(recorded: Recorded, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ops of loops, with their `stretch` of equal iterations, of `length` ops, and its `body`.

    A loop over a tensor unbinds it first, which is `ahead` of the iterations and takes all elements.
    """
    threads = rows.select(pl.struct("phase", "burst", "thread").rle_id()).to_series().to_numpy()
    threads = threads.astype(np.int64)  # -1 is none of them
    codes = rows["name"].rank("dense").to_numpy().astype(np.int64)
    codes = np.where(rows["layer"].to_numpy(), -np.arange(1, len(codes) + 1), codes)  # repeat nothing
    stretches, lengths = np.full(len(codes), -1), np.zeros(len(codes), np.int64)
    bodies: dict[tuple[int, ...], int] = {}
    of, ahead = np.full(len(codes), -1), np.zeros(len(codes), bool)
    unbinds = (rows["name"] == UNBIND).to_numpy()
    turns = np.flatnonzero(np.diff(threads, prepend=-1, append=-1)).tolist()
    for begin, end in pairwise(turns):
        for first, last, length in stretches_of(codes[begin:end]):
            mine = slice(begin + first, begin + last)
            body = tuple(np.unique(codes[mine]).tolist())
            stretches[mine], lengths[mine], ahead[mine] = begin + first, length, False
            of[mine] = bodies.setdefault(body, len(bodies))
            before = begin + first
            while before > begin and unbinds[before - 1] and stretches[before - 1] < 0:
                before -= 1
            mine = slice(before, begin + first)
            stretches[mine], lengths[mine] = begin + first, length
            of[mine], ahead[mine] = bodies[body], True
    repeated = rows.with_columns(stretch=pl.Series(stretches), length=pl.Series(lengths), body=pl.Series(of))
    repeated = repeated.with_columns(ahead=pl.Series(ahead))
    within = recorded.inside(rows) & ~_loading(recorded, rows)
    return repeated.with_columns(inside=within).filter(pl.col("stretch") >= 0)


def _loading(recorded: Recorded, rows: pl.DataFrame) -> pl.Series:
    """Return a mask of the rows that start while the program waits for a batch."""
    waits = of_rows(recorded.rows("waits").filter(cause="input").collect())
    return pl.Series(containing(waits, rows["start_ns"].to_numpy()) >= 0, dtype=pl.Boolean)


def stretches_of(codes: Array) -> Iterator[tuple[int, int, int]]:
    """Yield the first row, the end and the length of an iteration, where at least AGAIN iterations are equal.

    Shorter iterations come first, so an inner loop counts before the loop around it.
    """
    free = np.ones(len(codes), bool)
    for length in range(1, min(LONGEST, len(codes) // AGAIN) + 1):
        same = (codes[:-length] == codes[length:]) & free[:-length] & free[length:]
        turns = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        for first, last in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
            end = last + length
            if last - first >= (AGAIN - 1) * length and free[first:end].all():
                free[first:end] = False
                yield first, end, length


def _loop(recorded: Recorded, top: Array, timed: pl.DataFrame, rows: pl.DataFrame) -> Loop:
    """Return the loop whose ops are `rows`."""
    used = rows.filter("inside")
    spans = used.group_by("stretch", maintain_order=True).agg(
        thread=pl.col("thread").first(),
        start_ns=pl.col("start_ns").min(),
        end_ns=pl.col("end_ns").max(),
        iterations=(~pl.col("ahead")).sum() / pl.col("length").first(),
    )
    kernels = _kernels(recorded, top, used)
    return Loop(
        ms=recorded.per_step_ms(float((spans["end_ns"] - spans["start_ns"]).sum())),
        iterations=float(spans["iterations"].sum()) / recorded.steps,
        count=used.height / recorded.steps,
        own=_own(timed, used),
        kernels={family: ns / recorded.steps / NS_PER_MS for family, ns, _ in kernels.iter_rows()},
        launches=float(kernels["count"].sum()) / recorded.steps,
        typical=_typical(used.filter(~pl.col("ahead"))),
        largest=_largest(rows),
        source=most_common(rows["ran"]) or _sampled(recorded, spans),
    )


def _timed(recorded: Recorded, top: Array) -> pl.DataFrame:
    """Return the ops of the used windows with their own nanoseconds, `took`, and the row of their `top`."""
    ops = recorded.ops
    timed = ops.select("id", "parent", "kind", "name", "start_ns", "end_ns", top=pl.Series(top))
    return with_own_time(timed.filter(pl.Series(recorded.inside(ops)), kind="op"))


def _own(timed: pl.DataFrame, used: pl.DataFrame) -> dict[str, float]:
    """Return the share that the loop has of the time of each op, by name."""
    mine = pl.col("top").is_in(used["row"].implode())
    shares = timed.group_by("name", maintain_order=True).agg(
        pl.col("took").filter(mine).sum() / pl.col("took").sum()
    )
    return {name: share for name, share in shares.iter_rows() if name and share and share > 0}


def _kernels(recorded: Recorded, top: Array, used: pl.DataFrame) -> pl.DataFrame:
    """Return the `label` of device work that the loop launches, with its nanoseconds and its number."""
    if recorded.device.device == CPU:
        return pl.DataFrame(schema={"label": pl.String, "ns": pl.Int64, "count": pl.Int64})
    rows = linked(recorded)
    launched = rows["op"].to_numpy()
    outermost = pl.Series(np.where(launched >= 0, top[launched], NONE))
    mine = rows.filter(outermost.is_in(used["row"].implode()))
    return mine.group_by("label").agg(pl.col("ns").sum(), count=pl.len())


def _typical(used: pl.DataFrame) -> float | None:
    """Return the usual time of ops that compute, over the usual time of those that take an element.

    If the loop only reads elements into Python, this is what its ops do.
    """
    took = used.select(
        took=pl.col("end_ns") - pl.col("start_ns"), element=pl.col("name").str.contains(ELEMENT)
    )
    element, other = (took.filter(of)["took"].median() for of in (pl.col("element"), ~pl.col("element")))
    if element is None and used["name"].str.contains(READ).all():
        return 1.0
    return float(other) / float(element) if element and other else None  # type: ignore[arg-type]


def _largest(rows: pl.DataFrame) -> int | None:
    """Return the usual number of elements of the largest tensor that an op of the loop reads."""
    shapes = rows.filter(~pl.col("name").str.contains(ELEMENT))["shapes"].drop_nulls()
    sizes = pl.Series([max((int(np.prod(s)) for s in shapes_of(text)), default=0) for text in shapes])
    return None if sizes.is_empty() else int(sizes.median())  # type: ignore[arg-type]


def _sampled(recorded: Recorded, spans: pl.DataFrame) -> str | None:
    """Return the line with most samples of the host's stacks in the loop."""
    stacks = recorded.rows("stacks").filter(phase="timeline").collect()
    return None if stacks.is_empty() or spans.is_empty() else line_in(stacks, spans)
