"""Edges between the batches of loaders whose workers' pace was recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.intervals import Array
from fathom.analysis.loading import PACE_NS, READY, WORKERS
from fathom.analysis.replay.graph import EdgeKind
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.results import Gain
from fathom.analysis.replay.team import Calls

ROUGHLY = 0.05  # relative error of the workers' pace


class Feed(NamedTuple):
    """Parallel arrays of the calls for batches whose loader's pace is known, by time."""

    call: Array
    loader: Array
    pace: Array  # ns between ready batches, at most
    workers: Array
    was_ready: Array  # the batch was ready, so that the wait is the time to hand it out


def feed_of(calls: Calls, batches: Array, waits: pl.DataFrame) -> Feed:
    """Return the pace of the calls `batches`, from the rows of `waits` around their starts."""
    known = waits.drop_nulls(PACE_NS).sort("start_ns")
    start, end = known["start_ns"].to_numpy(), known["end_ns"].to_numpy()
    place = np.searchsorted(start, calls.start[batches], "right") - 1
    inside = place >= 0
    inside[inside] = calls.start[batches][inside] <= end[place[inside]]
    rows = place[inside]
    loader = known["detail"].fill_null("").rank("dense").to_numpy()
    columns = (known[name].to_numpy() for name in (PACE_NS, WORKERS, READY))
    return Feed(batches[inside], loader[rows], *(column[rows] for column in columns))


def loader_edges(part: Part, late: Array, feed: Feed) -> None:
    """Add edges between batches: workers need their time for each, however quick the program becomes.

    No edge is longer than the recorded distance. A late batch follows its worker's one before at the recorded
    distance; all batches together come at the workers' pace, which matters if the program gets quicker.
    """
    part.fed_ns = float(feed.pace.sum())
    for loader in distinct(feed.loader).tolist():
        mine = Feed(*(column[feed.loader == loader] for column in feed))
        _keep_pace(part, mine)
        _follow(part, mine, late[mine.call])


def _keep_pace(part: Part, feed: Feed) -> None:
    after = np.minimum(feed.pace[1:], np.diff(part.calls.end[feed.call]))
    part.edges.add(EdgeKind.LOADER, part.done[feed.call[:-1]], part.done[feed.call[1:]], after, other=1)


def _follow(part: Part, feed: Feed, late: Array) -> None:
    """Add the edges of late batches; a worker's first batch of the burst follows the first request."""
    if not late.any():
        return
    index = np.flatnonzero(late)
    before = index - feed.workers[index]
    known, call = before >= 0, feed.call
    last = call[np.maximum(before, 0)]
    source = np.where(known, part.done[last], part.begin[call[0]])
    since = np.where(known, part.calls.end[last], part.calls.start[call[0]])
    after, batches = part.calls.end[call[index]] - since, np.where(known, feed.workers[index], index + 1)
    part.edges.add(EdgeKind.LOADER, source, part.done[call[index]], after, other=batches)


def within_pace(gain: Gain, step_ms: float, fed_ms: float) -> Gain:
    """Return the gain, limited to a step in which workers make its batches: `fed_ms`, 0 if unknown."""
    most = max(step_ms - fed_ms, 0.0)
    if not fed_ms or gain.high <= most:
        return gain
    around = ROUGHLY * fed_ms if gain.ms > most else 0.0
    return Gain(min(gain.ms, most), min(gain.low, most - around), min(gain.high, most + around))
