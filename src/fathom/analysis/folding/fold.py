"""One group of counters folded onto what ran: states of the device first, then families."""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.folding.align import moved
from fathom.analysis.folding.fit import Fit, Question, blocks_of, fit, leaning, mixed_up
from fathom.analysis.folding.kinds import Kind, denominators, kind_of
from fathom.analysis.folding.parts import Parts
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.folding.shares import Shares, shares
from fathom.analysis.intervals import Array
from fathom.units import NS_PER_S

MOST_STATES = 600  # columns of the fit; rarer states share one
MOST_PARTS = 400  # columns up to which states are divided into their parts
TINY = 1e-9


class Folded(msgspec.Struct):
    """Values and standard errors, columns x counters (NaN: not told), of sets of states.

    `columns` are the states (indices) that each row of values stands for; `samples` in how many samples one
    of them occurred; `information` how many whole samples would tell as much.
    """

    columns: list[list[int]]
    values: Array
    errors: Array
    samples: Array
    information: Array
    zero: Array
    unknown: list[str] = msgspec.field(default_factory=list)  # counters whose kind is not known
    rest: int | None = None  # the row that stands for all states that were too rare for one of their own


def fold(
    readings: Readings, parts: dict[int, Parts], alignments: dict[int, Alignment], names: int
) -> Folded | None:
    """Fold the samples of the bursts that were aligned; `names` is the number of states of all bursts.

    `parts` are what the states of each burst are made of. None where no sample lies among recorded kernels.
    """
    rows, design = _design(readings, parts, alignments)
    if not len(rows):
        return None
    used = readings.only(rows)
    some = next(iter(parts.values()))
    into, rare = _columns(design.pooled(some.owner, names), used)
    column = into[some.owner]
    shown = np.bincount(design.column, design.part, design.columns) > 0
    fine, asked = _asked(some, column, np.where(shown, _time(parts), 0.0))
    result = _solve(used, design.pooled(fine, len(asked.ridge)), asked)
    result.samples = design.pooled(column, len(asked.blend)).touched()
    result.rest = int(into[rare[0]]) if len(rare) else None
    result.columns = [np.flatnonzero(into == one).tolist() for one in range(len(asked.blend))]
    _add_alignment_error(result, used, parts, alignments, fine, asked)
    return result


def _columns(flat: Shares, used: Readings) -> tuple[Array, Array]:
    """The column of each state, one for those that cannot be told apart; and the rare ones that share one."""
    pooled, into, rare = _pool(flat)
    return mixed_up(pooled.gram())[into], rare


def _time(parts: dict[int, Parts]) -> Array:
    """The time of each part."""
    return np.sum([one.times for one in parts.values()], axis=0)


def _asked(parts: Parts, column: Array, times: Array) -> tuple[Array, Question]:
    """The fit's column of each part, of its own while there are any left; and how values are made of them.

    `column` and `times` are those of each part, 0 for one that no sample shows.
    """
    apart = _divided(parts, column, times)[column]
    own = np.where((times > 0) | (parts.level == np.arange(len(times))), np.arange(len(times)), parts.level)
    fine = np.unique(np.where(apart, own, -1 - column), return_inverse=True)[1]
    blend = np.zeros((int(column.max()) + 1, int(fine.max()) + 1))
    np.add.at(blend, (column, fine), times)
    total = blend.sum(axis=1, keepdims=True)
    blend = np.divide(blend, total, out=np.zeros_like(blend), where=total > 0)
    return fine, Question(blend, leaning(parts.level, fine, blend.shape[1]))


def _divided(parts: Parts, column: Array, times: Array) -> Array:
    """Which columns are of one state and get a column for each of its parts: those with most time."""
    size = int(column.max()) + 1
    seen = np.flatnonzero(times > 0)
    states = np.unique(np.stack((column[seen], parts.owner[seen])), axis=1)[0]
    one = np.bincount(states, minlength=size) == 1
    more = np.where(one, np.bincount(column[seen], minlength=size) - 1, 0)
    order = np.argsort(-np.bincount(column, times, size), kind="stable")
    found = np.zeros(size, bool)
    found[order] = np.cumsum(more[order]) <= MOST_PARTS - size
    return found & (more > 0)


def _design(
    readings: Readings, states: dict[int, Parts], alignments: dict[int, Alignment], sigma: float = 0.0
) -> tuple[Array, Shares]:
    """The samples that lie between the first and last kernel of their burst, and their shares.

    The clocks are moved by `sigma` of their errors. Of a steady burst, what these may move out is left out.
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


def _solve(
    readings: Readings, design: Shares, asked: Question, zero: Array | None = None, *, sure: bool = True
) -> Folded:
    """Every counter by its kind; not `sure`: values alone. `zero` is a guess of what is bound to 0."""
    kinds, below = [kind_of(name) for name in readings.names], denominators(readings.names)
    values, edges = _additive(readings, kinds, below), blocks_of(readings.burst)
    empty = np.full((len(asked.blend), len(kinds)), np.nan)
    bound = np.zeros((asked.blend.shape[1], len(kinds)), bool)
    result = Folded([], empty, empty.copy(), np.zeros(len(empty)), np.zeros(empty.shape), bound)
    for place, known in _alike(values, [k for k, kind in enumerate(kinds) if kind]):
        position = {counter: number for number, counter in enumerate(place)}
        under = np.array([_place(position, below[k], number) for k, number in position.items()])
        guess = None if zero is None else zero[:, place]
        found = fit(design, values[:, place], known, edges, asked, under, guess, sure=sure)
        result.values[:, place], result.errors[:, place] = found.values, found.errors
        result.information[:, place], bound[:, place] = found.information[:, None], found.zero
        _ratios(result, found, place, [below[counter] for counter in place])
    result.unknown = [name for name, kind in zip(readings.names, kinds, strict=True) if not kind]
    return result


def _place(position: dict[int, int], counter: int | None, otherwise: int) -> int:
    return otherwise if counter is None else position.get(counter, otherwise)


def _additive(readings: Readings, kinds: list[Kind | None], below: list[int | None]) -> Array:
    """Values of which a mixture's is the mean of its parts: sums as rates, ratios as numerators."""
    values = readings.values.copy()
    seconds = (readings.ends - readings.starts) / NS_PER_S
    for place, kind in enumerate(kinds):
        if kind and kind.kind == "sum":
            values[:, place] /= seconds
    return np.stack([_numerator(values, place, below) for place in range(len(kinds))], axis=1)


def _numerator(values: Array, place: int, below: list[int | None]) -> Array:
    """The counter times what it is a ratio of, which may be a ratio itself."""
    under = below[place]
    if under is None or under == place:
        return values[:, place]
    amount = _numerator(values, under, below)
    return np.where(amount == 0, 0.0, values[:, place] * amount)  # nothing of nothing


def _alike(values: Array, places: list[int]) -> list[tuple[list[int], Array]]:
    """Counters that were sampled in the same rows, and those rows: they share a fit."""
    known = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for place in places:
        groups.setdefault(np.packbits(known[:, place]).tobytes(), []).append(place)
    return [(same, known[:, same[0]]) for same in groups.values() if known[:, same[0]].any()]


def _ratios(result: Folded, found: Fit, place: list[int], below: list[int | None]) -> None:
    """Turn folded numerators into ratios, with the error of a ratio of correlated sums (delta method)."""
    for column, (counter, under) in enumerate(zip(place, below, strict=True)):
        if under is None:
            continue
        if under not in place:
            result.values[:, counter] = np.nan
            continue
        amount = found.values[:, place.index(under)]
        safe = np.where(amount > TINY, amount, np.nan)
        result.values[:, counter] = found.values[:, column] / safe
        result.errors[:, counter] = found.ratio_errors[:, column] / safe


def _add_alignment_error(
    result: Folded,
    readings: Readings,
    parts: dict[int, Parts],
    alignments: dict[int, Alignment],
    fine: Array,
    asked: Question,
) -> None:
    """What an error of the clocks does to the values; bursts err independently."""
    rows, design = _design(readings, parts, alignments, sigma=1.0)
    if len(rows) < len(readings.starts):  # samples at the rim fell out
        readings = readings.only(rows)
    other = _solve(readings, design.pooled(fine, len(asked.ridge)), asked, result.zero, sure=False)
    change = np.nan_to_num(other.values - result.values)
    bursts = max(len(np.unique(readings.burst)), 1)
    result.errors = np.sqrt(result.errors**2 + change**2 / bursts)
