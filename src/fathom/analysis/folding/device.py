"""Counters of every kernel family of one device: samples aligned, folded, and put into the table's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.folding.align import align
from fathom.analysis.folding.families import AND, Told, tell
from fathom.analysis.folding.fold import Folded, fold
from fathom.analysis.folding.kinds import bare, kind_of
from fathom.analysis.folding.launches import Launches, launches_of
from fathom.analysis.folding.parts import Parts, parts_of
from fathom.analysis.folding.pools import by_family, passing_of, pools_of, rare_of
from fathom.analysis.folding.possible import possible
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment, Folding, Pool
from fathom.analysis.folding.states import Members, States
from fathom.analysis.folding.together import together
from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained
from fathom.sounding import conform

SOURCE = "PM sampling"
_KEYS = ["device", "family", "counter"]


class Group(NamedTuple):
    """Samples of one group of counters, and what ran during its bursts: states, their members and times."""

    readings: Readings
    alignments: dict[int, Alignment]
    parts: dict[int, Parts]
    members: list[Members]
    times: Array


class Round(msgspec.Struct):
    """What one fold of all groups tells; `told` and `ran` are numbers of counters by family.

    `ran` are those that were sampled while the family ran.
    """

    frames: list[pl.DataFrame] = msgspec.field(default_factory=list)
    silent: dict[str, str] = msgspec.field(default_factory=dict)  # family: why
    told: Counter[str] = msgspec.field(default_factory=Counter)
    ran: Counter[str] = msgspec.field(default_factory=Counter)
    unknown: list[Abstained] = msgspec.field(default_factory=list)

    @property
    def frame(self) -> pl.DataFrame:
        """Of counters that several groups hold, the rows with the smallest error."""
        if not self.frames:
            return conform("counters", pl.DataFrame())
        rows = pl.concat(self.frames).sort(*_KEYS, "error")
        return rows.unique(_KEYS, keep="first", maintain_order=True)


def fold_device(readings: list[Readings], kernels: pl.DataFrame, unsure: dict[int, int]) -> Folding:
    """The counters of one device; `unsure` as `fold_samples` has it.

    Launch shapes of one function that are too rare are folded once more, as one family; all others stay as
    they were told.
    """
    launches, device = launches_of(kernels), readings[0].device
    members: list[Members] = [()]
    groups = [_aligned(one, launches, members, unsure) for one in readings]
    once = _round(groups, launches.labels)
    rare = rare_of(once.told, once.ran)
    pools = pools_of(launches.functions, rare, passing_of(once.ran), device)
    again = _pooled(groups, launches, pools) if pools else Round()
    best = {one: max(once.told[name] for name in rare.intersection(one.families)) for one in pools}
    pools = [one for one in pools if again.told[one.label] > best[one]]
    frame = _both(once.frame, again.frame, pools, rare)
    known = {*frame["family"], *by_family(pools, device)}
    silent = [
        Abstained(f"counters of {name} on device {device}", why)
        for name, why in once.silent.items()
        if name not in known
    ]
    unaligned = [reason for one in groups for reason in _unaligned(one)]
    alignment = [found for one in groups for found in one.alignments.values()]
    return Folding(frame, [*unaligned, *once.unknown, *silent], alignment, pools)


def _aligned(readings: Readings, launches: Launches, members: list[Members], unsure: dict[int, int]) -> Group:
    whole, parts, times = _ran(launches, np.unique(readings.burst).tolist(), members)
    alone = {
        burst: align(readings.only(readings.burst == burst), burst, states, unsure.get(burst, 0))
        for burst, states in whole.items()
    }
    return Group(readings, together(readings, parts, alone), parts, list(members), times)


def _ran(
    launches: Launches, bursts: Iterable[int], members: list[Members], various: Collection[int] = ()
) -> tuple[dict[int, States], dict[int, Parts], Array]:
    """The states of each burst, what they are made of, and their times in all of them."""
    whole = {burst: launches.states(burst, members) for burst in bursts}
    return whole, parts_of(whole, various), np.sum([states.times for states in whole.values()], axis=0)


def _pooled(groups: list[Group], launches: Launches, pools: Sequence[Pool]) -> Round:
    """The fold of the same samples, lying as before, with the families of each pool as one.

    Where launches of a pool took longer or shorter while a group was sampled than over all groups, other
    shapes ran: a rate may be off by as much.
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
    off = [
        {
            label: abs(took / usual[label] - 1)
            for label, took in other.lengths(labels, list(group.alignments)).items()
        }
        for group in groups
    ]
    return _round(again, other.labels, off)


def _round(groups: list[Group], labels: list[str], off: Sequence[dict[str, float]] = ()) -> Round:
    found = Round()
    for one, unlike in zip(groups, off or [{}] * len(groups), strict=True):
        folded = fold(one.readings, one.parts, one.alignments, len(one.members))
        if folded is None:
            continue
        told, untold = tell(folded, one.members, one.times, labels)
        ran = {labels[k] for state in np.flatnonzero(one.times) for k in one.members[state]}
        size = len(one.readings.names)
        found.ran.update(dict.fromkeys(ran, size))
        found.told.update(dict.fromkeys(ran - dict(untold).keys(), size))
        frame, odd = possible(_less_sure(_rows(one.readings, folded, told), unlike))
        found.frames.append(frame)
        found.silent = dict(untold) | found.silent
        found.unknown += [*_unaveraged(folded), *odd]
    return found


def _less_sure(frame: pl.DataFrame, unlike: dict[str, float]) -> pl.DataFrame:
    """With errors of that share of the value more, by family or what families of a group have most of."""
    names = frame["family"].unique().to_list() if unlike else []
    share = {name: max(unlike.get(one, 0.0) for one in name.split(AND)) for name in names}
    if not share:
        return frame
    more = pl.col("value") * pl.col("family").replace_strict(share, return_dtype=pl.Float64)
    return frame.with_columns(error=(pl.col("error") ** 2 + more**2).sqrt())


def _both(once: pl.DataFrame, again: pl.DataFrame, pools: Sequence[Pool], rare: set[str]) -> pl.DataFrame:
    """The rows of the first fold, but of the rare families that pools tell now; and those of the pools."""
    if not pools:
        return once
    pooled = rare.intersection(name for pool in pools for name in pool.families)
    named = again["family"].str.split(AND).list.set_intersection([pool.label for pool in pools])
    new = again.filter(named.list.len() > 0).join(once, on=_KEYS, how="anti")
    return pl.concat([once.filter(~pl.col("family").is_in(pooled)), new]).sort(*_KEYS)


def _unaligned(group: Group) -> list[Abstained]:
    what = f"counters of device {group.readings.device} in burst "
    return [Abstained(f"{what}{one.burst}", one.why) for one in group.alignments.values() if one.why]


def _unaveraged(folded: Folded) -> list[Abstained]:
    return [
        Abstained(f"counter {name}", "its name does not say how to average it") for name in folded.unknown
    ]


def _rows(readings: Readings, folded: Folded, told: list[Told]) -> pl.DataFrame:
    """The table's rows; counters that were not sampled while a family ran have none."""
    columns = [one.column for one in told]
    values, errors = folded.values[columns], folded.errors[columns]
    width = len(readings.names)
    units = [kind.unit if (kind := kind_of(name)) else "" for name in readings.names]
    frame = pl.DataFrame(
        {
            "device": readings.device,
            "family": [one.name for one in told for _ in range(width)],
            "counter": [bare(name) for name in readings.names] * len(told),
            "value": values.ravel(),
            "unit": units * len(told),
            "samples": np.repeat(folded.samples[columns], width),
            "error": errors.ravel(),
            "source": SOURCE,
        }
    )
    return conform("counters", frame.filter(pl.col("value").is_finite(), pl.col("error").is_finite()))
