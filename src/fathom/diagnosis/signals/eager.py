"""The effect of torch.compile on a step in eager mode: fused kernels and fewer launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import polars as pl

from fathom.analysis.causes import OPTIMIZER_REGION
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import covered, of_rows
from fathom.analysis.work import DTYPES, SIGNATURE, SIZE, works_of
from fathom.diagnosis.signals.compiled import REGION
from fathom.diagnosis.signals.fusing import (
    CAT,
    COPY,
    RANDOM,
    SCATTERED,
    SCATTERS,
    Fused,
    Part,
    Reach,
    fuse,
    tensors_of,
)
from fathom.diagnosis.signals.kernels import linked
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Eager
from fathom.diagnosis.signals.shapes import dtypes_of, lists_of, shapes_of
from fathom.diagnosis.signals.value import signal
from fathom.machine import limits_of
from fathom.sounding import COMPILER
from fathom.units import NS_PER_MS, NS_PER_S

GENERATED = re.compile(r"^triton_(poi|per|red|tem|for|mm)|^triton_.*_fused_|^cpp_fused")
# Work of the loop's other parts, which `torch.compile(model)` leaves as it is.
OUTSIDE = re.compile(
    r"Optimizer\.|AccumulateGrad|clip_grad|_fused_(adam|sgd)|_amp_|_foreach_"
    r"|aten::(normal_|uniform_|random_|randn|rand|randint|randperm)\b"
)
# The compiler ends its graph where the host needs a value.
BREAKS = re.compile(r"^aten::(_local_scalar_dense|nonzero|unique2?|_unique2|masked_select)$")
# Ops whose kernels the compiler calls as they are.
KEPT = re.compile(
    r"aten::(\w*mm|\w*bmm|mv|dot|linear|matmul|\w*convolution\w*|\w*attention\w*|\w*rnn\w*|lstm|gru|sort|topk"
    r"|cumsum|cumprod|nonzero|unique\w*|embedding_dense_backward|_embedding_bag\w*|multinomial|_ctc\w*"
    r"|_local_scalar_dense|item|\w*fft\w*|\w*solve\w*|bincount|histc|_index_put_impl_|index_put_|_to_copy_sparse"
    r"|(index|scatter)_add_?)$"
)
LIBRARY = re.compile(
    r"gemm|nvjet|cutlass|xmma|fmha|flash|sdpa|cudnn_generated|wgrad|dgrad|fprop|conv|nccl|splitK|radix|cub::"
)
# Rows that are added by index, and gradients of rows that were read by index, for which eager mode sorts the
# indices: a generated kernel adds atomically.
SCATTER = re.compile(
    r"^autograd::.* > aten::(_index_put_impl_|embedding_dense_backward)( >|$)"
    r"|aten::(index|scatter)_add_?( >|$)"
)
# The argument with the rows that are moved, of ops without a formula for their bytes.
ROWS = {"aten::_index_put_impl_": 2} | {
    f"aten::{name}_add{_}": 3 for name in ("index", "scatter") for _ in ("", "_")
}
VECTOR = r"^\[\[\d{1,5}\],"  # shapes of a copy to a tensor of one dimension, as short as a bias
# Casts that other kernels contain: of gradients, and of convolutions' biases. Products need those of theirs.
CONTAINED = r"^autograd::|aten::conv"
BY_MASK = re.compile(r"aten::_index_put_impl_ > aten::nonzero")  # the compiler leaves it to the library
PUT = "aten::_index_put_impl_"
HALF, HOPPER = "BFloat16", 9  # before Hopper, additions of bfloat16 are left to the library
INTEGERS = "long int"  # additions of integers always are
REACHED = 0.6  # of memory's ceiling by fused kernels: on an H200 norms 62 %, pointwise ones 42 to 56 %
SHORTEST = 0.1  # quantile of eager kernels' times: generated ones with hardly anything to do
# Host time as a share of an eager op's: a launch of generated code (median of six programs on H200s' hosts),
# and an input of a graph (0.29 to 0.35 on a processor).
LAUNCH, INPUT = 0.79, 0.35
GRADIENT, BATCH_NORM, BUFFERS = "torch::autograd::AccumulateGrad", "aten::batch_norm", 3
LONGEST_LAUNCH = 10.0  # times the median: in longer ones the host stopped
FIXED = 10.0  # launches' worth of a graph: guards, and the wrappers of both passes


@signal("framework.eager", "per step")
def eager(recorded: Recorded) -> Eager:
    """Return the effect on a program that never compiled anything. Raises UnknownSignalError for others."""
    check_never_compiled(recorded)
    return fusible(recorded)


@signal("framework.fusible", "per step")
def fusible(recorded: Recorded) -> Eager:
    """Return the effect on steps that run uncompiled. Raises UnknownSignalError for others, or without
    shapes.
    """
    check_uncompiled(recorded)
    rows = sized(recorded)
    named = rows.with_columns(op=pl.col("path").list.last().fill_null("")).select(Part._fields)
    fused = fuse([Part._make(row) for row in named.iter_rows()], _reach(recorded, rows))
    if not fused.before:
        raise UnknownSignalError("no kernels that the compiler could fuse were recorded")
    steps, optimizer = recorded.steps, _optimizer_share(recorded)
    first = fused.longest[0] if fused.longest else None
    return Eager(
        saved={family: ns / steps / NS_PER_MS for family, ns in fused.gains().items()},
        fusible_ms=fused.now_ns / steps / NS_PER_MS,
        before=fused.before / steps,
        after=fused.after / steps,
        chains=fused.chains / steps,
        ops=tuple(row.op for row in fused.longest),
        host=_host(recorded, rows, fused, optimizer),
        optimizer=optimizer,
        source=first and first.source,
        module=first and first.module,
    )


def check_never_compiled(recorded: Recorded) -> None:
    """Raise UnknownSignalError if the compiler ran in this program."""
    if COMPILER in recorded.facts or recorded.ops["name"].str.contains("TorchDynamo").any():
        raise UnknownSignalError("the compiler ran in this program")


def check_uncompiled(recorded: Recorded) -> None:
    """Raise UnknownSignalError if there are compiled regions, generated kernels or replayed CUDA graphs."""
    names = recorded.ops["name"].unique().drop_nulls()
    if names.str.contains(REGION).any() or names.str.contains("CompiledFunction").any():
        raise UnknownSignalError("parts of the program are compiled")
    if not names.str.starts_with("aten::").any():
        raise UnknownSignalError("no ops of torch were recorded")
    kernels = recorded.table("kernels")
    if any(GENERATED.search(name) for name in kernels["name"].unique().drop_nulls()):
        raise UnknownSignalError("parts of the program are compiled")
    if "graph_node" in kernels.columns and kernels["graph_node"].is_not_null().sum() > 0.5 * kernels.height:
        raise UnknownSignalError("most kernels are replayed from CUDA graphs")


def sized(recorded: Recorded) -> pl.DataFrame:
    """Return the main stream's compute kernels in order, with the minimum bytes of their op divided by time.

    `part` says how the compiler treats the kernel: outside, kept, fused or scattered.
    """
    rows = linked(recorded).filter(pl.col("alone"), pl.col("entry") == Entry.COMPUTE).sort("start_ns")
    if rows["shapes"].null_count() == rows.height:
        raise UnknownSignalError("shapes were not recorded")
    owner = rows["owner"].to_numpy()
    calls = recorded.ops.select(SIGNATURE)[np.maximum(owner, 0)] if recorded.ops.height else None
    if calls is None:
        raise UnknownSignalError("no ops were recorded")
    works = works_of(calls)
    known = pl.Series(owner >= 0)
    share = pl.col("ns") / pl.col("ns").sum().over("owner", "op")
    op = pl.col("path").list.last().fill_null("")
    needs = pl.when(known).then(works["bytes"].fill_null(_by_index(rows)).fill_null(_of_lists(rows)))
    rows = with_tensors(rows.with_columns(needs=needs), op).with_columns(needs=pl.col("needs") * share)
    path = pl.col("path").list
    contained = path.join(" > ").str.contains(CONTAINED) & pl.col("shapes").str.contains(VECTOR)
    rows = rows.with_columns(vector=(path.last() == COPY) & contained)
    rows = rows.with_columns(_parts(recorded, rows), window=recorded.window(rows))
    return rows.with_columns(part=pl.when(_after_backward(rows)).then(pl.lit("outside")).otherwise("part"))


def with_tensors(rows: pl.DataFrame, op: pl.Expr) -> pl.DataFrame:
    """Return rows with the elements, columns and bytes of the largest tensors of each op that they call."""
    calls = rows.select(op.alias("called"), "shapes", "dtypes", "needs")
    sizes = {text: (numel_of(text), columns_of(text)) for text in calls["shapes"].unique()}
    tensors = {call: tensors_of(*call) for call in calls.unique().iter_rows()}
    every = list(calls.iter_rows())
    return rows.with_columns(
        numel=pl.Series([sizes[call[1]][0] for call in every], dtype=pl.Int64),
        columns=pl.Series([sizes[call[1]][1] for call in every], dtype=pl.Int64),
        reads=pl.Series([tensors[call][0] for call in every], dtype=pl.List(pl.Float64)),
        writes=pl.Series([tensors[call][1] for call in every], dtype=pl.Float64),
    )


def _by_index(rows: pl.DataFrame) -> pl.Series:
    """Return the bytes that moving rows to their places needs, without their indices; null for other ops."""
    calls = rows.select(pl.col("path").list.last(), "shapes", "dtypes")
    known = {call: _index_bytes(*call) for call in calls.unique().iter_rows() if call[0] in ROWS}
    return pl.Series([known.get(call) for call in calls.iter_rows()], dtype=pl.Float64)


def _index_bytes(op: str, shapes: str | None, dtypes: str | None) -> float | None:
    """Return the bytes of reading the values, and of reading and writing the places that they go to."""
    sizes, types = shapes_of(shapes), dtypes_of(dtypes)
    if len(sizes) < ROWS[op] + 1 or not types or DTYPES.get(types[0]) is None:
        return None
    target, values = prod(sizes[0]), prod(sizes[ROWS[op]])
    return SIZE[DTYPES[types[0]]] * (values + 2.0 * min(target, values))


def _of_lists(rows: pl.DataFrame) -> pl.Series:
    """Return the bytes of reading and writing what `cat` joins; null for other ops.

    The profiler does not record the dtypes of lists: the next kernel's op is assumed to read the result.
    """
    following = pl.col("dtypes").shift(-1).backward_fill()
    calls = rows.select(pl.col("path").list.last(), "shapes", following)
    return pl.Series(
        [_list_bytes(shapes, dtypes) if op == CAT else None for op, shapes, dtypes in calls.iter_rows()],
        dtype=pl.Float64,
    )


def _list_bytes(shapes: str | None, dtypes: str | None) -> float | None:
    known = [SIZE[DTYPES[name]] for name in dtypes_of(dtypes) if DTYPES.get(name) is not None]
    numel = numel_of(shapes)
    return 2.0 * known[0] * numel if known and numel else None


def _parts(recorded: Recorded, rows: pl.DataFrame) -> pl.Series:
    """Return how the compiler treats each kernel."""
    path = pl.col("path").list.join(" > ")
    keys = rows.select(path, "label", "dtypes")
    parts = keys.unique(maintain_order=True)
    masked = any(BY_MASK.search(name) for name in parts["path"])
    named = [
        SCATTERED if _adds(recorded, name, dtypes, masked) else part_of(name, label)
        for name, label, dtypes in parts.rows()
    ]
    parts = parts.with_columns(part=pl.Series(named, dtype=pl.String))
    return keys.join(parts, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")["part"]


def _adds(recorded: Recorded, path: str, dtypes: str | None, masked: bool) -> bool:
    """Return whether a generated kernel adds atomically what these kernels add by index."""
    if not SCATTER.search(path) or (masked and PUT in path):
        return False
    if SCATTERS.search(path.rpartition(" > ")[2]) and dtypes_of(dtypes)[:1] == [INTEGERS]:
        return False
    return _major(recorded) >= HOPPER or HALF not in f"{dtypes}"


def _major(recorded: Recorded) -> int:
    """Return the major compute capability; 0 if unknown."""
    major = (_gpu(recorded).get("compute_capability") or "").partition(".")[0]
    return int(major) if major.isdigit() else 0


def _gpu(recorded: Recorded) -> Mapping[str, Any]:
    """Return what is known of the GPU; empty if the machine was not recorded."""
    gpus = recorded.machine.get("gpus") or []
    return next((gpu for gpu in gpus if gpu.get("index") == recorded.index), {})


def numel_of(shapes: str | None) -> int | None:
    """Return the number of elements of the largest input, or of a list of inputs; None if unknown."""
    listed = sum(prod(shape) for shape in lists_of(shapes))
    return listed or max((prod(shape) for shape in shapes_of(shapes) if shape), default=None)


def columns_of(shapes: str | None) -> int | None:
    """Return the last dimension of the largest input; None if unknown."""
    return max((shape for shape in shapes_of(shapes) if shape), key=prod, default=[None])[-1]


def _after_backward(rows: pl.DataFrame) -> pl.Series:
    """Return whether each kernel follows the backward pass of its step, like a custom optimizer."""
    backward = rows["path"].list.first().fill_null("").str.starts_with("autograd::")
    starts = rows.select("start_ns", "window", backward=backward)
    last = pl.col("start_ns").filter("backward").max().over("window")
    return starts.select((pl.col("start_ns") > last).fill_null(False)).to_series()


def part_of(path: str, family: str) -> str:
    """Return `outside` (the compiled model), `kept` (as a library kernel) or `fused`."""
    if not path or OUTSIDE.search(path):
        return "outside"
    last = path.rsplit(" > ", 1)[-1]
    if not last.startswith("aten::") or KEPT.search(last) or LIBRARY.search(family):
        return "kept"
    return "fused"


def _reach(recorded: Recorded, rows: pl.DataFrame) -> Reach:
    """Return what generated kernels reach on this GPU."""
    gpu = _gpu(recorded)
    processors, clock = gpu.get("multiprocessors") or 0, gpu.get("sm_clock_max_mhz") or 0
    shortest = rows["ns"].quantile(SHORTEST) or 0.0
    reach = Reach(_rate(recorded, rows), shortest, RANDOM * processors * clock / 1e3)
    return reach._replace(multiprocessors=processors) if processors else reach


def _rate(recorded: Recorded, rows: pl.DataFrame) -> float:
    """Return the bytes per ns of fused kernels, by the measured ceiling or else the fastest families."""
    limits = limits_of(recorded.machine, recorded.index)
    if limits is not None and limits.memory:
        return REACHED * limits.memory / NS_PER_S
    mine = rows.filter(pl.col("part") == "fused", pl.col("needs") > 0)
    families = mine.group_by("label").agg(pl.col("needs").sum(), pl.col("ns").sum())
    large = families.filter(pl.col("ns") >= 0.05 * pl.col("ns").sum())
    quickest = (large["needs"] / large["ns"]).max() if large.height else None
    if quickest is None:
        raise UnknownSignalError("the memory ceiling is unknown")
    return float(quickest)  # type: ignore[arg-type]


def _host(recorded: Recorded, rows: pl.DataFrame, fused: Fused, optimizer: float) -> float:
    """Return the factor on host time, above 1 if compiled code takes longer to launch.

    Guards and the wrappers of both passes are added, for each graph break again. The optimizer is not
    compiled.
    """
    ops = recorded.ops.select("kind", "phase", "name", "start_ns", "end_ns")
    ops = ops.filter(pl.col("name").str.contains(BREAKS.pattern), kind="op", phase="timeline")
    values = ops.filter(recorded.inside(ops))
    regions = recorded.ops.filter(pl.col("name").str.starts_with(OPTIMIZER_REGION)).drop_nulls("end_ns")
    within = covered(of_rows(regions), values["start_ns"].to_numpy(), values["end_ns"].to_numpy())
    breaks = int((within == 0).sum())  # an optimizer reads its own counts of steps
    launches = fused.after + FIXED * (recorded.steps + breaks)
    ratio = compiled_share(_launched(recorded, rows), launches, recorded.steps * _inputs(recorded))
    return 1.0 - (1.0 - optimizer) * (1.0 - ratio)


def _launched(recorded: Recorded, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with `host`, the time since the launch before them, without stops of the host."""
    keys = ["phase", "burst", "correlation"]
    calls = recorded.calls.select(*keys, "start_ns", "end_ns").drop_nulls().sort("start_ns")
    took = (pl.col("end_ns") - pl.col("end_ns").shift(1)).cast(pl.Float64)
    times = calls.select(*keys, host=took.clip(0.0, LONGEST_LAUNCH * took.median())).unique(
        keys, keep="first", maintain_order=True
    )
    return rows.join(times, on=keys, how="left", maintain_order="left")


def compiled_share(rows: pl.DataFrame, launches: float, inputs: float) -> float:
    """Return the model's host time when compiled, with so many launches of generated code, over that now.

    Ops that the compiler keeps take as long as now. A launch of generated code takes less than an op in eager
    mode, but that op may launch several kernels: batch norms, whose sums are separate kernels in generated
    code, may therefore cost the host more if they are compiled. Each of `inputs` costs time, too: guards
    check it, and both passes receive it. Without times, every op takes the same.
    """
    mine = rows.filter(pl.col("part") != "outside")
    ops = mine.group_by("window", "owner").agg(pl.col("part").first(), pl.col("host").sum())
    kept = (ops["part"] == "kept").to_numpy()
    host = ops["host"].to_numpy() if ops["host"].sum() else np.ones(ops.height)
    each = float(host[~kept].mean()) if not kept.all() else 0.0
    generated = (LAUNCH * launches + INPUT * inputs) * each
    return float((host[kept].sum() + generated) / host.sum()) if ops.height else 1.0


def _inputs(recorded: Recorded) -> float:
    """Return the number of inputs of graphs per step: trained parameters, and the buffers of batch norms."""
    phase, steps = _with_ops(recorded)
    ops = recorded.ops.filter(phase=phase)
    gradients, norms = (ops.filter(name=name).height for name in (GRADIENT, BATCH_NORM))
    return (gradients + BUFFERS * norms) / max(steps.height, 1)


def _with_ops(recorded: Recorded) -> tuple[str, pl.DataFrame]:
    """Return the phase that records ops and its complete steps. Imported traces have only the timeline."""
    steps = attributed(recorded)
    if steps.is_empty():
        return "timeline", attributed(recorded, "timeline")
    return "attribution", steps


def attributed(recorded: Recorded, phase: str = "attribution") -> pl.DataFrame:
    """Return the complete steps of a phase."""
    steps = recorded.rows("steps").filter(phase=phase).collect()
    return steps.filter(pl.col("parent").is_null()).drop_nulls("end_ns")


def _optimizer_share(recorded: Recorded) -> float:
    """Return the optimizer's share of host time in steps recorded with ops, which are host-bound."""
    phase, complete = _with_ops(recorded)
    regions = recorded.ops.filter(pl.col("name").str.starts_with(OPTIMIZER_REGION), phase=phase)
    took = covered(
        of_rows(regions.drop_nulls("end_ns")), complete["mark_ns"].to_numpy(), complete["end_ns"].to_numpy()
    )
    total = int((complete["end_ns"] - complete["mark_ns"]).sum())
    return min(float(took.sum()) / total, 1.0) if total else 0.0
