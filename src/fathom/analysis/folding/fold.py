"""One group of counters folded onto what ran: states of the device first, then families."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fathom.analysis.folding.align import moved
from fathom.analysis.folding.fit import Fit, blocks_of, fit, mixed_up, normal
from fathom.analysis.folding.kinds import Kind, denominator, kind_of
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.folding.states import IDLE, Shares, States, shares
from fathom.analysis.intervals import Array

MOST_STATES = 600  # columns of the fit; rarer states share one
TINY = 1e-9
EDGES_DIFFER = 0.05  # of what edges take off: they are not the same for every family


@dataclass
class Folded:
    """Values and standard errors, columns x counters (NaN: not told), of sets of states.

    `columns` are the states (indices) that each row of values stands for; `samples` in how many samples one
    of them occurred; `information` how many whole samples would tell as much.
    """

    columns: list[list[int]]
    values: Array
    errors: Array
    samples: Array
    information: Array
    unknown: list[str] = field(default_factory=list)  # counters whose kind is not known
    rest: int | None = None  # the row that stands for all states that were too rare for one of their own


def fold(
    readings: Readings,
    states: dict[int, States],
    whole: dict[int, States],
    alignments: dict[int, Alignment],
    names: int,
) -> Folded | None:
    """Fold the samples of the bursts that were aligned; `names` is the number of states of all bursts.

    `states` are those of launches without edges, `whole` those of whole launches, which values are about.
    None where no sample lies among recorded kernels.
    """
    rows, design = _design(readings, states, alignments, names)
    if not len(rows):
        return None
    used = readings.only(rows)
    blocks = blocks_of(used.burst)
    pooled, into, rare = _pool(design)
    gram, _ = normal(pooled, np.zeros((len(rows), 0)), np.ones(len(rows), bool), blocks)
    merge = mixed_up(gram)
    into, pooled = merge[into], pooled.pooled(merge, int(merge.max()) + 1)
    result = _solve(used, pooled, blocks)
    result.rest = int(into[rare[0]]) if len(rare) else None
    result.columns = [np.flatnonzero(into == column).tolist() for column in range(pooled.columns)]
    _add_alignment_error(result, used, states, alignments, into, blocks)
    _over_whole(result, readings.names, _time(states, into), _time(whole, into), int(into[IDLE]))
    return result


def _time(states: dict[int, States], into: Array) -> Array:
    """The time of each column."""
    times = np.sum([one.times for one in states.values()], axis=0)
    return np.bincount(into, times, int(into.max()) + 1)


def _over_whole(result: Folded, names: list[str], without: Array, whole: Array, idle: int) -> None:
    """Turn values of launches without edges into means over whole ones, whose edges are like idle time.

    Ratios of sums stay: an edge adds to neither.
    """
    part = np.divide(without, whole, out=np.ones_like(whole), where=whole > 0)
    part = np.clip(part, 0.0, 1.0)[:, None]
    part[idle] = 1.0
    for place, name in enumerate(names):
        kind = kind_of(name)
        if kind and kind.kind != "ratio":
            own, error = result.values[:, [place]], result.errors[:, [place]]
            rest, spread = own[idle], error[idle]
            result.values[:, [place]] = part * own + np.where(part < 1, (1 - part) * rest, 0.0)
            added = (1 - part) * np.hypot(spread, EDGES_DIFFER * (own - rest))
            result.errors[:, [place]] = np.hypot(part * error, np.where(part < 1, added, 0.0))


def _design(
    readings: Readings,
    states: dict[int, States],
    alignments: dict[int, Alignment],
    names: int,
    sigma: float = 0.0,
) -> tuple[Array, Shares]:
    """The samples that lie between the first and last kernel of their burst, and their shares.

    The clocks are moved by `sigma` of their errors.
    """
    rows, parts, done = [], [], 0
    for burst, alignment in alignments.items():
        mine = np.flatnonzero(readings.burst == burst)
        spans = states[burst].spans
        if alignment.why or not len(mine) or not len(spans.starts):
            continue
        starts, ends = moved(readings.only(mine), alignment, sigma * alignment.error_ns)
        within = (starts >= spans.starts[0]) & (ends <= spans.ends[-1])
        found = shares(states[burst], starts[within], ends[within])
        rows.append(mine[within])
        parts.append((found.row + done, found.column, found.part))
        done += int(within.sum())
    if not done:
        return np.zeros(0, np.int64), Shares(*(np.zeros(0),) * 3, 0, names)
    row, column, part = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return np.concatenate(rows), Shares(row, column, part, done, names)


def _pool(design: Shares) -> tuple[Shares, Array, Array]:
    """At most MOST_STATES columns, each state's column, and the states that share the last: the rarest."""
    time = np.bincount(design.column, design.part, design.columns)
    kept = np.argsort(-time, kind="stable")[: MOST_STATES - 1]
    into = np.full(design.columns, len(kept))
    into[kept] = np.arange(len(kept))
    count = int(into.max()) + 1
    rare = np.flatnonzero(into == len(kept)) if count > len(kept) else np.zeros(0, np.int64)
    return design.pooled(into, count), into, rare


def _solve(readings: Readings, design: Shares, blocks: list[tuple[int, int]]) -> Folded:
    """Every counter by its kind."""
    kinds = [kind_of(name) for name in readings.names]
    values = _additive(readings, kinds)
    shape = (design.columns, len(kinds))
    result = Folded([], np.full(shape, np.nan), np.full(shape, np.nan), design.touched(), np.zeros(shape))
    for place, known in _alike(values, [k for k, kind in enumerate(kinds) if kind]):
        found = fit(design, values[:, place], known, blocks)
        result.values[:, place], result.errors[:, place] = found.values, found.errors
        result.information[:, place] = found.information[:, None]
        _ratios(result, found, readings.names, kinds, place)
    result.unknown = [name for name, kind in zip(readings.names, kinds, strict=True) if not kind]
    return result


def _additive(readings: Readings, kinds: list[Kind | None]) -> Array:
    """Values of which a mixture's is the mean of its parts: sums as rates, ratios as numerators."""
    values = readings.values.copy()
    seconds = (readings.ends - readings.starts) / 1e9
    for place, kind in enumerate(kinds):
        if kind and kind.kind == "sum":
            values[:, place] /= seconds
        below = denominator(readings.names[place], readings.names)
        if below is not None:
            amount = readings.values[:, below]
            product = values[:, place] * amount
            values[:, place] = np.where(amount == 0, 0.0, product)  # nothing of nothing
    return values


def _alike(values: Array, places: list[int]) -> list[tuple[list[int], Array]]:
    """Counters that were sampled in the same rows, and those rows: they share a fit."""
    known = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for place in places:
        groups.setdefault(np.packbits(known[:, place]).tobytes(), []).append(place)
    return [(same, known[:, same[0]]) for same in groups.values() if known[:, same[0]].any()]


def _ratios(result: Folded, found: Fit, names: list[str], kinds: list[Kind | None], place: list[int]) -> None:
    """Turn folded numerators into ratios, with the error of a ratio of correlated sums (delta method)."""
    for column, counter in enumerate(place):
        below = denominator(names[counter], names)
        if below is None:
            continue
        if below not in place:
            result.values[:, counter] = np.nan
            continue
        under = place.index(below)
        amount = found.values[:, under]
        safe = np.where(amount > TINY, amount, np.nan)
        ratio = found.values[:, column] / safe
        left = found.influence[:, :, column] - ratio * found.influence[:, :, under]
        result.values[:, counter] = ratio
        result.errors[:, counter] = np.sqrt((left**2).sum(axis=0)) / safe


def _add_alignment_error(
    result: Folded,
    readings: Readings,
    states: dict[int, States],
    alignments: dict[int, Alignment],
    into: Array,
    blocks: list[tuple[int, int]],
) -> None:
    """What an error of the clocks does to the values; bursts err independently."""
    rows, design = _design(readings, states, alignments, len(into), sigma=1.0)
    if len(rows) < len(readings.starts):  # samples at the rim fell out
        readings = readings.only(rows)
        blocks = blocks_of(readings.burst)
    other = _solve(readings, design.pooled(into, int(into.max()) + 1), blocks)
    change = np.nan_to_num(other.values - result.values)
    bursts = max(len(np.unique(readings.burst)), 1)
    result.errors = np.sqrt(result.errors**2 + change**2 / bursts)
