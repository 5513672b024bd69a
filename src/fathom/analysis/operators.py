"""The operators that a step calls on the host, by phase: forward, backward and optimizer."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.causes import OPTIMIZER_REGION, api_cause, of_engine
from fathom.analysis.columns import filled
from fathom.analysis.device import detail
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Spans, containing, spans
from fathom.analysis.recording import Timeline, read_timeline
from fathom.analysis.windows import base, dominant
from fathom.analysis.work.tree import Flags, Rows, below, rows_of
from fathom.sounding import Store

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_INPUT = "enumerate(DataLoader)"  # begins the names of annotations
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_AT_ONCE = r"^aten::_(foreach|fused)_"  # operators on lists of tensors
_CLASS = r"^Optimizer\.step#(\w+)\.step$"
_MOST = 0.5  # of the steps: in fewer, a synchronisation is not part of the step

Counts = dict[tuple[str, str], float]  # per step, by name and phase


class Operators(msgspec.Struct, frozen=True):
    """The operators that a step calls, nested ones included, as means over the profiled steps.

    `launched` are the kernels and copies by the phase that launched them. `parameters` are the tensors that
    get a gradient. `at_once` is `foreach` or `fused` if the optimizer handles lists of tensors, in `on_lists`
    operators. `optimizer` is its class. `waits` is whether the program synchronises with the device in each
    step.
    """

    counts: Counts
    launched: Counts = {}
    parameters: float = 0.0
    at_once: str = ""
    waits: bool = False
    on_lists: float = 0.0
    optimizer: str = ""

    def total(self, phase: str) -> float:
        """Return the operators of a phase."""
        return sum(count for (_, of), count in self.counts.items() if of == phase)


def operators_of(store: Store, rank: int) -> Operators | None:
    """Return the operators of a rank's step; None if its operators or steps were not recorded."""
    timeline = read_timeline(store, rank)
    steps = _complete(timeline)
    if steps.is_empty() or timeline.ops.filter(kind="op").is_empty():
        return None
    marked = spans(steps["mark_ns"].to_numpy(), steps["end_ns"].to_numpy())
    inside = timeline.ops.filter(pl.Series(containing(marked, timeline.ops["start_ns"].to_numpy()) >= 0))
    phased = inside.with_columns(pl.Series("pass", _phases(inside, timeline.caller)))
    mine = phased.filter(_of_the_step(timeline.caller))
    optimizing = mine.filter(pl.col("pass") == OPTIMIZER)["name"]
    return Operators(
        _counted(mine["name"], mine["pass"], steps.height),
        _launched(timeline, phased, marked),
        mine.filter(pl.col("name") == _ACCUMULATES).height / steps.height,
        _at_once(optimizing),
        _waits(timeline, marked),
        float(optimizing.str.contains(_AT_ONCE).sum()) / steps.height,
        _optimizer(inside["name"]),
    )


def _complete(timeline: Timeline) -> pl.DataFrame:
    """Return the complete steps, by time, of the kind that the ledger shows."""
    steps = timeline.steps.filter(pl.col("parent").is_null()).drop_nulls(["mark_ns", "end_ns"])
    lengths = (steps["end_ns"] - steps["mark_ns"]).to_numpy()
    kinds = steps["kind"].fill_null("").to_list()
    return steps.filter(pl.col("kind").fill_null("") == base(dominant(kinds, lengths))).sort("mark_ns")


def _phases(ops: pl.DataFrame, caller: int | None) -> list[str | None]:
    """Return the phase of each op; null for those that load batches.

    The backward pass is below the engine's nodes, and on the engine's own threads, which call it on a GPU.
    """
    parent = rows_of(ops, ops, "parent")
    names = (of_engine(), *(pl.col("name").str.starts_with(name) for name in (OPTIMIZER_REGION, _INPUT)))
    backward, optimizer, loading = (
        _in_or_below(parent, filled(ops.select(known=name)["known"], False).to_numpy()) for name in names
    )
    threads = ops.filter(of_engine())["thread"].drop_nulls().unique()
    own = filled(ops["thread"].is_in(threads.implode()) & (ops["thread"] != caller), False).to_numpy()
    named = np.where(backward | own, BACKWARD, np.where(optimizer, OPTIMIZER, FORWARD)).tolist()
    return [None if loads else phase for phase, loads in zip(named, loading.tolist(), strict=True)]


def _in_or_below(parent: Rows, marked: Flags) -> Flags:
    return marked | below(parent, marked)


def _of_the_step(caller: int | None) -> pl.Expr:
    """Return whether a row is an operator of the thread that runs the steps, or of autograd's engine."""
    runs = (pl.col("thread") == caller).fill_null(False) | (pl.col("pass") == BACKWARD)
    return (pl.col("kind") == "op").fill_null(False) & pl.col("pass").is_not_null() & runs


def _counted(names: pl.Series, phases: pl.Series, steps: int) -> Counts:
    counts = Counter(zip(names.to_list(), phases.to_list(), strict=True))
    return {key: count / steps for key, count in counts.items()}


def _launched(timeline: Timeline, ops: pl.DataFrame, steps: Spans) -> Counts:
    """Return the pieces of device work by name, as in the ledger, and by the phase of the launching op."""
    kernels = timeline.kernels.drop_nulls("launched").with_columns(family=detail())
    kernels = kernels.filter(pl.Series(containing(steps, kernels["launched"].to_numpy()) >= 0))
    calls = timeline.calls.drop_nulls("correlation").select("burst", "correlation", "op")
    passes = ops.select("burst", "pass", op="id")
    linked = kernels.join(calls.unique(["burst", "correlation"]), on=["burst", "correlation"], how="left")
    linked = linked.join(passes.unique(["burst", "op"]), on=["burst", "op"], how="left")
    return _counted(linked["family"], linked["pass"].fill_null(FORWARD), len(steps.starts))


def _at_once(names: pl.Series) -> str:
    """Return `fused` or `foreach` if an optimizer calls operators of this kind; a fused one calls both."""
    kinds = set(names.str.extract(_AT_ONCE).drop_nulls().to_list())
    return next((kind for kind in ("fused", "foreach") if kind in kinds), "")


def _optimizer(names: pl.Series) -> str:
    """Return the class of the optimizer that annotates its steps; the most frequent one of several."""
    classes = names.str.extract(_CLASS).drop_nulls()
    return str(classes.mode().sort()[0]) if len(classes) else ""


def _waits(timeline: Timeline, steps: Spans) -> bool:
    """Return whether the thread that runs the steps waits for the device in most of them."""
    calls = timeline.calls.filter(pl.col("thread") == timeline.caller)
    blocking = [api_cause(api or "") == Entry.SYNCHRONISATION.cause for api in calls["api"].to_list()]
    within = containing(steps, calls["start_ns"].to_numpy()[np.array(blocking, bool)])
    return len(set(within.tolist()) - {-1}) > _MOST * len(steps.starts)
