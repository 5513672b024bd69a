"""Pipelines: the stages that ranks run, the schedule of micro-batches, bubbles, and imbalance of stages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.communication.results import Pipeline, Stage
from fathom.analysis.intervals import Spans, containing, intersect
from fathom.units import NS_PER_MS

FEWEST = 2  # micro-batches, and stages
SEND, RECEIVE = "send", "recv"
ALL_FORWARD_FIRST, ONE_BY_ONE = "all forward, then all backward (GPipe)", "one forward, one backward (1F1B)"
Ranks = Mapping[
    int, tuple[pl.DataFrame, Spans, Spans]
]  # collectives, time with compute kernels, used windows


def pipeline_of(ranks: Ranks) -> Pipeline | None:
    """Return the pipeline that `ranks` form by sends and receives; None if they form none.

    A stage's bubble is the time of a step in which it does not compute. With p stages of equal length and m
    micro-batches it is (p - 1) / (m + p - 1) of the step, in both schedules.
    """
    calls = {rank: _calls(rows, windows) for rank, (rows, _, windows) in ranks.items()}
    calls = {rank: rows for rank, rows in calls.items() if rows.height}
    if len(calls) < FEWEST:
        return None
    order = sorted(calls, key=lambda rank: _first_batch(calls[rank], ranks[rank][2]))
    first = calls[order[0]]
    micro = round(first.filter(called=SEND).height / len(ranks[order[0]][2].starts))
    later = [calls[rank]["called"][0] for rank in order[1:]]
    if micro < FEWEST or first["called"][0] != SEND or SEND in later:  # in a ring, all ranks send first
        return None
    stages = [_stage(rank, place, ranks[rank]) for place, rank in enumerate(order)]
    work = [stage.compute_ms for stage in stages]
    return Pipeline(
        stages=stages,
        micro_batches=micro,
        schedule=ALL_FORWARD_FIRST if _sends_first(first) >= micro else ONE_BY_ONE,
        expected=(len(stages) - 1) / (micro + len(stages) - 1),
        imbalance=max(work) / (sum(work) / len(work)) if sum(work) else 1.0,
    )


def _calls(rows: pl.DataFrame, windows: Spans) -> pl.DataFrame:
    rows = rows.filter(pl.col("called").is_in([SEND, RECEIVE])).sort("start_ns")
    inside = containing(windows, rows["start_ns"].to_numpy()) >= 0
    return rows.filter(pl.Series(inside, dtype=pl.Boolean))


def _first_batch(calls: pl.DataFrame, windows: Spans) -> float:
    """Return the mean time from the start of a step to the end of its first receive; 0 for a stage that sends
    first. Its send may last until the next stage has received it.
    """
    if calls["called"][0] == SEND:
        return 0.0
    place = containing(windows, calls["start_ns"].to_numpy())
    since = calls["end_ns"].to_numpy() - windows.starts[place]
    return float(np.mean([since[place == window].min() for window in distinct(place)]))


def _sends_first(calls: pl.DataFrame) -> int:
    """Return the number of sends of the first stage before it receives a gradient."""
    received = (calls["called"] == RECEIVE).arg_max()
    return calls.height if received is None else received


def _stage(rank: int, place: int, recorded: tuple[pl.DataFrame, Spans, Spans]) -> Stage:
    _, computing, windows = recorded
    per_step = NS_PER_MS * len(windows.starts)
    work, total = intersect(computing, windows).length / per_step, windows.length / per_step
    return Stage(rank, place, work, total - work, (total - work) / total)
