"""Fold one group of counters: values of each counter in each state of the device."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.folding.align import moved
from fathom.analysis.folding.fit import Fit, Question, blocks_of, collinear, fit, level_ridge
from fathom.analysis.folding.kinds import CounterKind, denominators, kind_of
from fathom.analysis.folding.parts import Parts
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.folding.shares import Shares, shares
from fathom.analysis.intervals import Array
from fathom.units import NS_PER_S

MOST_STATES = 600  # most columns of the fit; rarer states share one column
MOST_PARTS = 400  # most columns after states are divided into parts
TINY = 1e-9


class Folded(msgspec.Struct):
    """Values and standard errors, as sets of states x counters; NaN if unknown.

    `columns` lists the states (indices) of each set. `samples` is the number of samples in which a state of
    the set occurs, `information` the number of samples entirely within the set that would be equally precise.
    """

    columns: list[list[int]]
    values: Array
    errors: Array
    samples: Array
    information: Array
    zero: Array
    unknown: list[str] = msgspec.field(default_factory=list)  # counters of unknown kind
    rest: int | None = None  # the set of all states that are too rare for a column


def fold(
    readings: Readings, parts: dict[int, Parts], alignments: dict[int, Alignment], names: int
) -> Folded | None:
    """Fold the samples of the aligned bursts; `names` is the number of states in all bursts.

    `parts` are the parts of the states by burst. Returns None if no sample lies between recorded kernels.
    """
    rows, design = _design(readings, parts, alignments)
    if not len(rows):
        return None
    used = readings.only(rows)
    any_burst = next(iter(parts.values()))
    into, rare = _columns(design.pooled(any_burst.owner, names))
    column = into[any_burst.owner]
    shown = np.bincount(design.column, design.part, design.columns) > 0
    fine, asked = _asked(any_burst, column, np.where(shown, _time(parts), 0.0))
    result = _solve(used, design.pooled(fine, len(asked.ridge)), asked)
    result.samples = design.pooled(column, len(asked.blend)).touched()
    result.rest = int(into[rare[0]]) if len(rare) else None
    result.columns = [np.flatnonzero(into == row).tolist() for row in range(len(asked.blend))]
    _add_alignment_error(result, used, parts, alignments, fine, asked)
    return result


def _columns(flat: Shares) -> tuple[Array, Array]:
    """Return the column of each state (shared by collinear states), and the rare states that share one."""
    pooled, into, rare = _pool(flat)
    return collinear(pooled.gram())[into], rare


def _time(parts: dict[int, Parts]) -> Array:
    """Return the time of each part over all bursts, in ns."""
    return np.sum([burst.times for burst in parts.values()], axis=0)


def _asked(parts: Parts, column: Array, times: Array) -> tuple[Array, Question]:
    """Return the fit's column of each part, and the question that the fit answers.

    Parts get separate columns as long as there are any left. `column` and `times` are per part; the time is 0
    if no sample shows the part.
    """
    divided = _divided(parts, column, times)[column]
    own = np.where((times > 0) | (parts.level == np.arange(len(times))), np.arange(len(times)), parts.level)
    fine = np.unique(np.where(divided, own, -1 - column), return_inverse=True)[1]
    blend = np.zeros((int(column.max()) + 1, int(fine.max()) + 1))
    np.add.at(blend, (column, fine), times)
    total = blend.sum(axis=1, keepdims=True)
    blend = np.divide(blend, total, out=np.zeros_like(blend), where=total > 0)
    return fine, Question(blend, level_ridge(parts.level, fine, blend.shape[1]))


def _divided(parts: Parts, column: Array, times: Array) -> Array:
    """Return a mask of the columns to divide into parts: columns of a single state, with the most time."""
    size = int(column.max()) + 1
    seen = np.flatnonzero(times > 0)
    states = np.unique(np.stack((column[seen], parts.owner[seen])), axis=1)[0]
    single = np.bincount(states, minlength=size) == 1
    more = np.where(single, np.bincount(column[seen], minlength=size) - 1, 0)
    order = np.argsort(-np.bincount(column, times, size), kind="stable")
    divided = np.zeros(size, bool)
    divided[order] = np.cumsum(more[order]) <= MOST_PARTS - size
    return divided & (more > 0)


def _design(
    readings: Readings, states: dict[int, Parts], alignments: dict[int, Alignment], sigma: float = 0.0
) -> tuple[Array, Shares]:
    """Return the rows of samples between the first and last kernel of their burst, and their shares.

    Clocks are shifted by `sigma` times their errors. In a steady burst, samples are left out if the clock
    error might move them out of that range.
    """
    names = len(next(iter(states.values())).members)
    rows, parts, done = [], [], 0
    for burst, alignment in alignments.items():
        mine = np.flatnonzero(readings.burst == burst)
        spans = states[burst].spans
        if alignment.why or not len(mine) or not len(spans.starts):
            continue
        starts, ends = moved(readings.only(mine), alignment, sigma * alignment.error_ns)
        margin = alignment.error_ns if alignment.steady else 0.0
        within = (starts - margin >= spans.starts[0]) & (ends + margin <= spans.ends[-1])
        burst_shares = shares(states[burst], starts[within], ends[within])
        rows.append(mine[within])
        parts.append((burst_shares.row + done, burst_shares.column, burst_shares.part))
        done += int(within.sum())
    if not done:
        return np.zeros(0, np.int64), Shares(*(np.zeros(0),) * 3, 0, names)
    row, column, part = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return np.concatenate(rows), Shares(row, column, part, done, names)


def _pool(design: Shares) -> tuple[Shares, Array, Array]:
    """Return at most MOST_STATES columns, each state's column, and the rare states that share the last."""
    time = np.bincount(design.column, design.part, design.columns)
    kept = np.argsort(-time, kind="stable")[: MOST_STATES - 1]
    into = np.full(design.columns, len(kept))
    into[kept] = np.arange(len(kept))
    count = int(into.max()) + 1
    rare = np.flatnonzero(into == len(kept)) if count > len(kept) else np.zeros(0, np.int64)
    return design.pooled(into, count), into, rare


def _solve(
    readings: Readings, design: Shares, asked: Question, zero: Array | None = None, *, sure: bool = True
) -> Folded:
    """Fold every counter by its kind, with errors only if `sure`; `zero` is the guess for `fit`."""
    kinds, below = [kind_of(name) for name in readings.names], denominators(readings.names)
    values, edges = _additive(readings, kinds, below), blocks_of(readings.burst)
    empty = np.full((len(asked.blend), len(kinds)), np.nan)
    bound = np.zeros((asked.blend.shape[1], len(kinds)), bool)
    result = Folded([], empty, empty.copy(), np.zeros(len(empty)), np.zeros(empty.shape), bound)
    for place, known in _alike(values, [k for k, kind in enumerate(kinds) if kind]):
        position = {counter: number for number, counter in enumerate(place)}
        under = np.array([_place(position, below[k], number) for k, number in position.items()])
        guess = None if zero is None else zero[:, place]
        solution = fit(design, values[:, place], known, edges, asked, under, guess, sure=sure)
        result.values[:, place], result.errors[:, place] = solution.values, solution.errors
        result.information[:, place], bound[:, place] = solution.information[:, None], solution.zero
        _ratios(result, solution, place, [below[counter] for counter in place])
    result.unknown = [name for name, kind in zip(readings.names, kinds, strict=True) if not kind]
    return result


def _place(position: dict[int, int], counter: int | None, otherwise: int) -> int:
    return otherwise if counter is None else position.get(counter, otherwise)


def _additive(readings: Readings, kinds: list[CounterKind | None], below: list[int | None]) -> Array:
    """Return values that add up over a mixture of states: sums as rates, ratios as their numerators."""
    values = readings.values.copy()
    seconds = (readings.ends - readings.starts) / NS_PER_S
    for place, kind in enumerate(kinds):
        if kind and kind.kind == "sum":
            values[:, place] /= seconds
    return np.stack([_numerator(values, place, below) for place in range(len(kinds))], axis=1)


def _numerator(values: Array, place: int, below: list[int | None]) -> Array:
    """Return the counter times its denominator, which may be a ratio itself."""
    under = below[place]
    if under is None or under == place:
        return values[:, place]
    amount = _numerator(values, under, below)
    return np.where(amount == 0, 0.0, values[:, place] * amount)  # a ratio to nothing counts nothing


def _alike(values: Array, places: list[int]) -> list[tuple[list[int], Array]]:
    """Return groups of counters sampled in the same rows, with a mask of the rows; a group shares a fit."""
    known = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for place in places:
        groups.setdefault(np.packbits(known[:, place]).tobytes(), []).append(place)
    return [(same, known[:, same[0]]) for same in groups.values() if known[:, same[0]].any()]


def _ratios(result: Folded, solution: Fit, place: list[int], below: list[int | None]) -> None:
    """Turn folded numerators into ratios, with the error of a ratio of correlated sums (delta method)."""
    for column, (counter, under) in enumerate(zip(place, below, strict=True)):
        if under is None:
            continue
        if under not in place:
            result.values[:, counter] = np.nan
            continue
        amount = solution.values[:, place.index(under)]
        safe = np.where(amount > TINY, amount, np.nan)
        result.values[:, counter] = solution.values[:, column] / safe
        result.errors[:, counter] = solution.ratio_errors[:, column] / safe


def _add_alignment_error(
    result: Folded,
    readings: Readings,
    parts: dict[int, Parts],
    alignments: dict[int, Alignment],
    fine: Array,
    asked: Question,
) -> None:
    """Add the effect of clock errors, which are independent between bursts, to the errors of values."""
    rows, design = _design(readings, parts, alignments, sigma=1.0)
    if len(rows) < len(readings.starts):  # samples at the edges fell out
        readings = readings.only(rows)
    other = _solve(readings, design.pooled(fine, len(asked.ridge)), asked, result.zero, sure=False)
    change = np.nan_to_num(other.values - result.values)
    bursts = max(len(distinct(readings.burst)), 1)
    result.errors = np.sqrt(result.errors**2 + change**2 / bursts)
