"""Fold the samples of one device: align bursts with its kernels, jointly by group, then compute counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from fathom.analysis.columns import distinct
from fathom.analysis.folding.align import align
from fathom.analysis.folding.families import AND, by_family, passing_of, pools_of, rare_of, resolve
from fathom.analysis.folding.fold import Folded, fold
from fathom.analysis.folding.parts import Parts, parts_of
from fathom.analysis.folding.profile import (
    CLOSE,
    DIVIDED,
    NARROW,
    WIDE,
    Pooling,
    lowest,
    noise,
    settled_shift,
    standard,
    thinned,
)
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment, Folding, Pool
from fathom.analysis.folding.rows import less_sure, possible, rows_of
from fathom.analysis.folding.states import Launches, Members, States, launches_of
from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained
from fathom.sounding import conform

_KEYS = ["device", "family", "counter"]
SURE_NS = 500.0  # if its error is smaller, an alignment is only searched for nearby
TRUSTED_NS = 2_000.0  # bursts with a larger error do not determine values, unless all have
COUNTERS = 24
ROUNDS, STILL_NS = 6, 25.0


class Group(NamedTuple):
    """Samples of one counter group, and the states of the device in its bursts, with their times in ns."""

    readings: Readings
    alignments: dict[int, Alignment]
    parts: dict[int, Parts]
    members: list[Members]
    times: Array


class Round(msgspec.Struct):
    """The result of one fold of all groups.

    For each family, `resolved` is the number of counters with a value, and `sampled` the number of counters
    sampled while the family ran.
    """

    frames: list[pl.DataFrame] = msgspec.field(default_factory=list)
    unresolved: dict[str, str] = msgspec.field(default_factory=dict)  # the reason by family
    resolved: Counter[str] = msgspec.field(default_factory=Counter)
    sampled: Counter[str] = msgspec.field(default_factory=Counter)
    unknown: list[Abstained] = msgspec.field(default_factory=list)

    @property
    def frame(self) -> pl.DataFrame:
        """All rows; a counter in several groups has the row with the smallest error."""
        if not self.frames:
            return conform("counters", pl.DataFrame())
        rows = pl.concat(self.frames).sort(*_KEYS, "error")
        return rows.unique(_KEYS, keep="first", maintain_order=True)


def fold_device(readings: list[Readings], kernels: pl.DataFrame, unsure: dict[int, int]) -> Folding:
    """Return the counters of one device; `unsure` is that of `fold_samples`.

    Launch shapes of one function that are too rare are folded again as one family, a pool. A pool is used if
    it resolves more counters than any of its rare families.
    """
    launches, device = launches_of(kernels), readings[0].device
    members: list[Members] = [()]
    groups = [_aligned(group, launches, members, unsure) for group in readings]
    once = _round(groups, launches.labels)
    rare = rare_of(once.resolved, once.sampled)
    pools = pools_of(launches.functions, rare, passing_of(once.sampled), device)
    again = _pooled(groups, launches, pools) if pools else Round()
    pools = [pool for pool in pools if again.resolved[pool.label] > _best(pool, rare, once)]
    frame = _both(once.frame, again.frame, pools, rare)
    known = {*frame["family"], *by_family(pools, device)}
    unresolved = [
        Abstained(f"counters of {name} on device {device}", why)
        for name, why in once.unresolved.items()
        if name not in known
    ]
    unaligned = [reason for group in groups for reason in _unaligned(group)]
    alignment = [burst for group in groups for burst in group.alignments.values()]
    return Folding(frame, [*unaligned, *once.unknown, *unresolved], alignment, pools)


def _best(pool: Pool, rare: set[str], once: Round) -> int:
    """Return the largest number of counters that the first fold resolved for a rare family of the pool."""
    return max(once.resolved[name] for name in rare.intersection(pool.families))


def _aligned(readings: Readings, launches: Launches, members: list[Members], unsure: dict[int, int]) -> Group:
    states, parts, times = _ran(launches, distinct(readings.burst).tolist(), members)
    single = {
        burst: align(readings.only(readings.burst == burst), burst, own, unsure.get(burst, 0))
        for burst, own in states.items()
    }
    return Group(readings, align_jointly(readings, parts, single), parts, list(members), times)


def _ran(
    launches: Launches, bursts: Iterable[int], members: list[Members], various: Collection[int] = ()
) -> tuple[dict[int, States], dict[int, Parts], Array]:
    """Return the states of each burst, their parts, and the time of each state over all bursts in ns."""
    states = {burst: launches.states(burst, members) for burst in bursts}
    return states, parts_of(states, various), np.sum([own.times for own in states.values()], axis=0)


def _pooled(groups: list[Group], launches: Launches, pools: Sequence[Pool]) -> Round:
    """Fold the same samples at the same alignment, with the families of each pool merged into one.

    If the launches of a pool are longer or shorter during one group's bursts than over all groups, other
    shapes ran, and its rates may be wrong by the same ratio.
    """
    other = launches.relabelled({name: pool.label for pool in pools for name in pool.families})
    various = [other.labels.index(pool.label) for pool in pools]
    members: list[Members] = [()]
    again = []
    for group in groups:
        _, parts, times = _ran(other, group.alignments, members, various)
        again.append(group._replace(parts=parts, members=list(members), times=times))
    labels = [pool.label for pool in pools]
    usual = other.lengths(labels, [burst for group in groups for burst in group.alignments])
    deviations = [
        {
            label: abs(took / usual[label] - 1)
            for label, took in other.lengths(labels, list(group.alignments)).items()
        }
        for group in groups
    ]
    return _round(again, other.labels, deviations)


def _round(groups: list[Group], labels: list[str], deviations: Sequence[dict[str, float]] = ()) -> Round:
    """Fold every group; `deviations` maps groups and families to the relative error of their rates."""
    result = Round()
    for group, deviation in zip(groups, deviations or [{}] * len(groups), strict=True):
        folded = fold(group.readings, group.parts, group.alignments, len(group.members))
        if folded is None:
            continue
        resolved, unresolved = resolve(folded, group.members, group.times, labels)
        ran = {labels[k] for state in np.flatnonzero(group.times) for k in group.members[state]}
        size = len(group.readings.names)
        result.sampled.update(dict.fromkeys(ran, size))
        result.resolved.update(dict.fromkeys(ran - dict(unresolved).keys(), size))
        frame, impossible = possible(less_sure(rows_of(group.readings, folded, resolved), deviation))
        result.frames.append(frame)
        result.unresolved = dict(unresolved) | result.unresolved
        result.unknown += [*_unaveraged(folded), *impossible]
    return result


def _both(once: pl.DataFrame, again: pl.DataFrame, pools: Sequence[Pool], rare: set[str]) -> pl.DataFrame:
    """Return the rows of the first fold without the rare families of pools, and the rows of the pools."""
    if not pools:
        return once
    pooled = rare.intersection(name for pool in pools for name in pool.families)
    named = again["family"].str.split(AND).list.set_intersection([pool.label for pool in pools])
    new = again.filter(named.list.len() > 0).join(once, on=_KEYS, how="anti")
    return pl.concat([once.filter(~pl.col("family").is_in(pooled)), new]).sort(*_KEYS)


def _unaligned(group: Group) -> list[Abstained]:
    what = f"counters of device {group.readings.device} in burst "
    return [Abstained(f"{what}{burst.burst}", burst.why) for burst in group.alignments.values() if burst.why]


def _unaveraged(folded: Folded) -> list[Abstained]:
    return [
        Abstained(f"counter {name}", "its name does not say how to average it") for name in folded.unknown
    ]


def align_jointly(
    readings: Readings, parts: dict[int, Parts], alignments: dict[int, Alignment]
) -> dict[int, Alignment]:
    """Refine the alignments of bursts: the values of states that best fit all bursts decide each shift."""
    refined = dict(alignments)
    usable = [burst for burst, own in refined.items() if not (own.why or own.steady)]
    if len(usable) < 2:
        return refined
    model = _Model(readings, parts, usable)
    model.weigh({burst: refined[burst].shift_ns for burst in usable})
    for _ in range(ROUNDS):
        trusted = [b for b in usable if refined[b].error_ns <= TRUSTED_NS] or usable
        values = model.values({burst: refined[burst].shift_ns for burst in trusted})
        before = refined
        refined = refined | _with_mean_of({b: model.aligned(refined[b], values) for b in usable}, alignments)
        if max(abs(refined[b].shift_ns - before[b].shift_ns) for b in usable) < STILL_NS:
            break
    return refined


def _with_mean_of(joint: dict[int, Alignment], single: dict[int, Alignment]) -> dict[int, Alignment]:
    """Return the joint alignments, moved to the mean of the single ones.

    Otherwise, values of the first and last parts of launches could absorb a shift of all bursts.
    """
    weight = {burst: max(single[burst].error_ns, 1.0) ** -2 for burst in joint}
    total = sum(weight.values())
    by = sum(weight[b] * (single[b].shift_ns - own.shift_ns) for b, own in joint.items()) / total
    return {
        burst: replace(own, shift_ns=own.shift_ns + by, error_ns=float(np.hypot(own.error_ns, total**-0.5)))
        for burst, own in joint.items()
    }


class _Model:
    """Standardised values of the least noisy counters, explained by the states with the most time."""

    def __init__(self, readings: Readings, parts: dict[int, Parts], bursts: list[int]) -> None:
        mine = {burst: np.flatnonzero(readings.burst == burst) for burst in bursts}
        rows = {burst: own[thinned(len(own))] for burst, own in mine.items()}
        place = np.concatenate(list(rows.values()))
        scaled = standard(readings.only(place), COUNTERS)
        self.seen = np.split(scaled, np.cumsum([len(own) for own in rows.values()])[:-1])
        self.bursts = {burst: number for number, burst in enumerate(rows)}
        self.readings = [readings.only(own) for own in rows.values()]
        self.parts = [parts[burst] for burst in rows]
        times = np.sum([part.times for part in self.parts], axis=0)
        self.pooling = Pooling(self.parts[0], times, len(place), DIVIDED)
        self.interval = readings.interval_ns

    def weigh(self, shifts: dict[int, float]) -> None:
        """Weight counters by the precision with which states explain them at these shifts."""
        values = self.values(shifts)
        left = [self.seen[n] - self._design(n, shifts[burst]) @ values for burst, n in self.bursts.items()]
        scale = noise(np.concatenate(left))
        self.seen = [values / scale for values in self.seen]

    def values(self, shifts: dict[int, float]) -> Array:
        """Return the least-squares values of the states at these shifts by burst, columns x counters."""
        gram, right = self.pooling.ridge.copy(), 0.0
        for burst, shift in shifts.items():
            design = self._design(self.bursts[burst], shift)
            gram += design.T @ design
            right += design.T @ self.seen[self.bursts[burst]]
        return np.linalg.solve(gram, right)

    def aligned(self, alignment: Alignment, values: Array) -> Alignment:
        """Return the alignment of the burst that best fits the given values of states."""
        number = self.bursts[alignment.burst]

        def residuals(shift: float) -> Array:
            left = self.seen[number] - self._design(number, shift) @ values
            return (left**2).sum(axis=1)

        near, around = alignment.shift_ns, CLOSE
        if alignment.error_ns > SURE_NS:
            near, around = lowest(lambda s: residuals(s).sum(), near + WIDE * self.interval), NARROW
        shift, error, least = settled_shift(residuals, near + around * self.interval)
        total = float((self.seen[number] ** 2).sum())
        explained = 1 - least / total if total else 0.0
        return replace(alignment, shift_ns=shift, error_ns=error, explained=explained)

    def _design(self, number: int, shift: float) -> Array:
        return self.pooling.design(self.readings[number], self.parts[number], shift)
