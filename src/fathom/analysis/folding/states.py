"""Activity of a device: its launches, and the set of kernel families that run at each instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct, filled
from fathom.analysis.device import detail
from fathom.analysis.intervals import Array, Spans

IDLE = 0  # index of the state in which nothing runs
Members = tuple[int, ...]


class States(msgspec.Struct, frozen=True):
    """Sorted disjoint segments of time, each in a state; `members` are the families that run in each state.

    Time outside the segments is idle. Concurrent kernels of one family count as that family.
    """

    spans: Spans
    state: Array
    members: list[Members]

    @property
    def times(self) -> Array:
        """The time in each state in ns; idle time counts from the first kernel to the last."""
        lengths = self.spans.ends - self.spans.starts
        times = np.bincount(self.state, lengths, len(self.members))
        if len(lengths):
            times[IDLE] = self.spans.ends[-1] - self.spans.starts[0] - times.sum()
        return times

    @property
    def owner(self) -> Array:
        """The state of each index: itself, because states are not divided here."""
        return np.arange(len(self.members))

    @property
    def level(self) -> Array:
        """The index that gives each state's value if samples are missing: itself."""
        return np.arange(len(self.members))


def states_of(starts: Array, ends: Array, family: Array, known: list[Members]) -> States:
    """Return the states of one burst's kernels; append new states to `known`, which starts with idle."""
    kept = ends > starts
    starts, ends, family = starts[kept], ends[kept], family[kept]
    points = distinct(np.concatenate((starts, ends)))
    if not len(points):
        return States(Spans(points, points), points, known)
    count, mark = _running(points, starts, ends, family)
    busy = np.flatnonzero(count)
    _, first, which = np.unique(mark[busy], return_index=True, return_inverse=True)
    ids = [_identify(points[busy[k]], starts, ends, family, known) for k in first]
    return States(Spans(points[busy], points[busy + 1]), np.array(ids, np.int64)[which], known)


def _running(points: Array, starts: Array, ends: Array, family: Array) -> tuple[Array, Array]:
    """Return the number of kernels between neighbouring points, and a hash of the families that run there."""
    opens, closes = np.searchsorted(points, starts), np.searchsorted(points, ends)
    size = len(points)
    count = np.cumsum(np.bincount(opens, minlength=size) - np.bincount(closes, minlength=size))
    keys = np.random.default_rng(0).integers(1, 2**62, int(family.max()) + 1, dtype=np.uint64)[family]
    change = np.zeros(size, np.uint64)
    np.add.at(change, opens, keys)
    np.subtract.at(change, closes, keys)
    return count[:-1], np.cumsum(change)[:-1]


def _identify(at: int, starts: Array, ends: Array, family: Array, known: list[Members]) -> int:
    """Return the index of the device's state at an instant, appending it to `known` if it is new."""
    members = tuple(distinct(family[(starts <= at) & (ends > at)]).tolist())
    if members not in known:
        known.append(members)
    return known.index(members)


_NO_FUNCTIONS = ("copy", "set")


class Launches(NamedTuple):
    """One device's kernels, copies and memsets of all bursts; `family` is an index into `labels`.

    `functions` gives (kind, name) for labels that consist of a name and a launch shape.
    """

    burst: Array
    starts: Array
    ends: Array
    family: Array
    labels: list[str]
    functions: dict[str, tuple[str, str]]

    def states(self, burst: int, members: list[Members]) -> States:
        """Return the states of one burst."""
        mine = self.burst == burst
        return states_of(self.starts[mine], self.ends[mine], self.family[mine], members)

    def relabelled(self, other: Mapping[str, str]) -> Launches:
        """Rename families by the map `other`, which merges families with the same new label."""
        labels = sorted({other.get(label, label) for label in self.labels})
        place = np.array([labels.index(other.get(label, label)) for label in self.labels], np.int64)
        return self._replace(family=place[self.family], labels=labels, functions={})

    def lengths(self, labels: Sequence[str], bursts: Sequence[int]) -> dict[str, float]:
        """Return the mean length in ns of the launches of each of `labels` that ran during `bursts`."""
        within = np.isin(self.burst, bursts)
        took = {
            label: (self.ends - self.starts)[within & (self.family == place)]
            for place, label in enumerate(self.labels)
            if label in labels
        }
        return {label: max(float(own.mean()), 1.0) for label, own in took.items() if len(own)}


def launches_of(kernels: pl.DataFrame) -> Launches:
    """Return the launches in one device's rows of the table `kernels`."""
    rows = kernels.with_columns(label=detail())
    labels = rows["label"].unique().sort().to_list()
    number = {label: place for place, label in enumerate(labels)}
    family = np.array([number[label] for label in rows["label"]], np.int64)
    burst = filled(rows["burst"], 0).to_numpy()
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    return Launches(burst, starts, ends, family, labels, _functions(rows))


def _functions(rows: pl.DataFrame) -> dict[str, tuple[str, str]]:
    launched = rows.filter(~pl.col("kind").is_in(_NO_FUNCTIONS)).select("label", "kind")
    split = [(label, kind, *label.rpartition(" ")) for label, kind in launched.unique().sort("label").rows()]
    return {label: (kind, name) for label, kind, name, _, shape in split if name and "·" in shape}
