"""The effect of torch.compile on a step that a processor computes op by op in eager mode."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from fathom.analysis.causes import OPTIMIZER_REGION
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import covered, of_rows
from fathom.analysis.work import NONE, SIGNATURE, with_own_time, works_of
from fathom.diagnosis.signals.eager import (
    BREAKS,
    attributed,
    check_never_compiled,
    check_uncompiled,
    part_of,
    with_tensors,
)
from fathom.diagnosis.signals.fusing import Part, moved, of_one_size, runs_of
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Interpreted
from fathom.diagnosis.signals.step import clean_ledger
from fathom.diagnosis.signals.value import signal
from fathom.machine import limits_of
from fathom.units import NS_PER_MS, NS_PER_S

OP = "aten::"
BACKWARD = re.compile(r"^autograd::engine")
NODE = re.compile(r"^autograd::|Backward\d*$")  # of the engine, which calls one function if compiled
# Ops that only make views or take memory, and parts of others that call them: generated code has neither.
FREE = re.compile(
    r"^aten::(t|transpose|as_strided|_?(unsafe_)?view|_?reshape\w*|expand\w*|(un)?squeeze|(un)?flatten|slice"
    r"|select|narrow|permute|detach|alias|split\w*|chunk|unbind|movedim|result_type|resolve_\w+|empty\w*"
    r"|view_as\w*|diagonal|unfold|set|lift_fresh|to|contiguous|matmul|linear)_?$"
)
DEEPEST = 64  # ops within each other
CALL_NS = 2_500.0  # of a call from generated code: of a fused kernel, or an op that the compiler keeps
# Guards and wrappers of a graph, without and with its backward pass. On two cores of an EPYC (torch 2.13), 4
# and 20 tiny layers took 45 and 215 µs, compiled 98 and 226; trained 323 and 1076, compiled 456 and 1015.
GRAPH_NS, TRAINED_NS = 63_000.0, 180_000.0
MOSTLY = 0.5  # of an op's calls
QUICK = 0.9  # quantile of the rates at which ops move their bytes


@signal("host.interpreted", "ms per step")
def interpreted(recorded: Recorded) -> Interpreted:
    """Return the effect on a program that never compiled anything.

    An op's time is that of a call, of moving its bytes, and of the rest, which fusing keeps. Shapes, modules
    and the order of ops come from the attribution phase, times from the ledger of the clean step. Raises
    UnknownSignalError for programs that compile, and without shapes or modules.
    """
    check_never_compiled(recorded)
    check_uncompiled(recorded)
    rows = _parts(recorded)
    calls = _calls(rows)
    rate = _rate(recorded, calls)
    free = rows.filter(part="free").group_by("name").agg(pl.col("ns").sum())
    saved = dict(free.iter_rows())
    parts = [Part(**call) for call in calls.iter_rows(named=True)]
    before, after = 0, sum(part.part == "kept" for part in parts)
    for alike in (alike for run in runs_of(parts) for alike in of_one_size(run)):
        now = sum(part.ns for part in alike)
        gained = max(now - _fused_ns(alike, rate), 0.0)
        before, after = before + len(alike), after + 1
        for part in alike if gained else ():
            saved[part.label] = saved.get(part.label, 0.0) + gained * part.ns / now
    if before == 0:
        raise UnknownSignalError("no ops that the compiler could fuse were recorded")
    total = dict(rows.group_by("name").agg(pl.col("ns").sum()).iter_rows())
    return Interpreted(
        ops={name: min(ns / total[name], 1.0) for name, ns in saved.items() if ns > 0},
        python=_python(recorded, rows, after),
        before=before,
        after=after,
    )


def _parts(recorded: Recorded) -> pl.DataFrame:
    """Return the ops of a step with modules: `ns`, their own time in the clean step, the row of the
    outermost op around them, and how the compiler treats them.
    """
    ops = recorded.ops.with_row_index("place").filter(phase="attribution", kind="op")
    if ops["module"].null_count() == ops.height or ops["shapes"].null_count() == ops.height:
        raise UnknownSignalError("modules and shapes were not recorded")
    rows = with_own_time(ops.filter(_in_a_step(recorded))).sort("start_ns")
    paths = [recorded.paths.names(place) for place in rows["place"]]
    modules = recorded.paths.marks("module", rows["place"].to_numpy()).to_list()
    named = zip(paths, modules, strict=True)
    parts = [_part(path, module is not None or _backward(path)) for path, module in named]
    rows = rows.with_columns(
        part=pl.Series(parts, dtype=pl.String),
        outermost=_are_outermost(recorded, rows),
        owner=_owners(recorded)[rows["place"].to_numpy()],
    )
    clean = {detail: ms for (entry, detail), ms in clean_ledger(recorded).items() if entry == Entry.OPS}
    total = pl.col("name").replace_strict(clean, default=0.0, return_dtype=pl.Float64) * NS_PER_MS
    share = (pl.col("took") / pl.col("took").sum().over("name")).fill_nan(0.0)
    return rows.with_columns(ns=total.clip(0.0) * share)


def _in_a_step(recorded: Recorded) -> pl.Expr:
    """Return whether an op starts in the last step with modules, of the account's kind if there is one."""
    steps = attributed(recorded).sort(pl.col("kind") == recorded.account.kind, "mark_ns")
    if steps.is_empty():
        raise UnknownSignalError("no step with modules was recorded")
    start, end = steps.select("mark_ns", "end_ns").row(-1)
    return pl.col("start_ns").is_between(start, end)


def _are_outermost(recorded: Recorded, rows: pl.DataFrame) -> pl.Series:
    """Return whether no op is around each op; annotations may be."""
    is_op = (recorded.ops["kind"] == "op").to_numpy()
    above = recorded.parents[rows["place"].to_numpy()]
    return pl.Series((above == NONE) | ~is_op[above], dtype=pl.Boolean)


def _backward(path: tuple[str, ...]) -> bool:
    return any(map(BACKWARD.search, path))


def _part(path: tuple[str, ...], of_model: bool) -> str:
    part = part_of(" > ".join(path), "") if of_model else "outside"
    if part != "outside" and (NODE.search(path[-1]) or FREE.search(path[-1])):
        return "free"
    return part


def _owners(recorded: Recorded) -> np.ndarray:
    """Return the row of the outermost op of torch around each op, or its own."""
    called = recorded.ops["name"].str.starts_with(OP).fill_null(False).to_numpy()
    owner, parent = np.arange(recorded.ops.height), recorded.parents.copy()
    for _ in range(DEEPEST):
        going = np.flatnonzero(parent >= 0)
        above = parent[going]
        owner[going] = np.where(called[above], above, owner[going])
        parent[going] = recorded.parents[above]
    return owner


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the calls that the compiler keeps or fuses, with the bytes and elements of the largest op."""
    works = works_of(rows.select(SIGNATURE))
    rows = with_tensors(rows.with_columns(needs=works["bytes"]), pl.col("name"))
    groups = rows.filter(pl.col("part").is_in(["kept", "fused"])).group_by("owner", maintain_order=True)
    kept = (pl.col("part") == "kept").any()
    longest = pl.col("name").sort_by("ns").last()
    return groups.agg(
        part=pl.when(kept).then(pl.lit("kept")).otherwise(pl.lit("fused")),
        window=pl.lit(0),
        ns=pl.col("ns").sum(),
        label=longest,
        op=longest,
        needs=pl.col("needs").max(),
        numel=pl.col("numel").max(),
        reads=pl.col("reads").sort_by("needs", nulls_last=False).last(),
        writes=pl.col("writes").sort_by("needs", nulls_last=False).last(),
    )


def _rate(recorded: Recorded, calls: pl.DataFrame) -> float:
    """Return the bytes per ns that memory reaches: its measured ceiling, or that of the quickest ops."""
    limits = limits_of(recorded.machine, None)
    if limits is not None and limits.memory:
        return limits.memory / NS_PER_S
    known = calls.filter(pl.col("needs") > 0, pl.col("ns") > CALL_NS)
    rate = (known["needs"] / (known["ns"] - CALL_NS)).quantile(QUICK) if known.height else None
    if rate is None:
        raise UnknownSignalError("the memory ceiling is unknown")
    return float(rate)


def _fused_ns(alike: list[Part], rate: float) -> float:
    """Return the time of one generated kernel: a call, the bytes that it moves, and what the ops compute."""
    computing = sum(max(part.ns - CALL_NS - (part.needs or 0.0) / rate, 0.0) for part in alike)
    return CALL_NS + (moved(alike).total / rate if any(part.needs for part in alike) else 0.0) + computing


def _python(recorded: Recorded, rows: pl.DataFrame, calls: int) -> float:
    """Return the share of the time between ops that is the model's, without that of `calls` and guards."""
    breaks = rows.filter(pl.col("part") != "outside", pl.col("name").str.contains(BREAKS.pattern)).height
    trains = rows["name"].str.contains(BACKWARD.pattern).any()
    clean = sum(ms for (entry, _), ms in clean_ledger(recorded).items() if entry == Entry.PYTHON)
    graphs_ns = (1 + breaks) * (TRAINED_NS if trains else GRAPH_NS)
    needed = (CALL_NS * calls + graphs_ns) / NS_PER_MS
    return max(_between(recorded, rows) - needed / clean, 0.0) if clean > 0 else 0.0


def _between(recorded: Recorded, rows: pl.DataFrame) -> float:
    """Return the share of the timeline's time between ops that lies between two of the model.

    Hooks that mark modules lengthen these times in the attribution phase, and not in the timeline.
    """
    timed = recorded.ops.with_row_index("place").filter(recorded.inside(recorded.ops))
    timed = timed.drop_nulls("end_ns").sort("start_ns")
    ops = timed.filter(kind="op")
    busy = of_rows(ops)
    total = recorded.used.length - int(covered(busy, *recorded.used).sum())
    optimizers = of_rows(timed.filter(pl.col("name").str.starts_with(OPTIMIZER_REGION)))
    outermost = ops.filter(_are_outermost(recorded, ops))
    model = outermost["name"].is_in(_outermost_of_model(rows)).to_numpy()
    window = recorded.window(outermost).to_numpy()
    starts = outermost["end_ns"].to_numpy()[:-1]
    ends = np.maximum(outermost["start_ns"].to_numpy()[1:], starts)
    within = model[1:] & model[:-1] & (window[1:] == window[:-1]) & (covered(optimizers, starts, ends) == 0)
    gaps = ends - starts - covered(busy, starts, ends)
    return min(float(gaps[within].sum()) / total, 1.0) if total > 0 else 0.0


def _outermost_of_model(rows: pl.DataFrame) -> list[str]:
    """Return the names of ops without another around them of which most calls are the model's."""
    shares = rows.filter("outermost").group_by("name").agg((pl.col("part") != "outside").mean())
    return shares.filter(pl.col("part") >= MOSTLY)["name"].to_list()
