"""What a state is made of: the course of its stretches, and stretches of different lengths apart.

Counters are not level within a launch: blocks start and end one after the other, tensor cores wait for the
first tiles, a few blocks work on when all others are done. What lies beside a gap or another kernel would
bend a fit of one value a state. Each part has a value of its own instead, and a state the mean of its parts
over its time, whatever the course. Launches of one family that differ in length do different work.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fathom.analysis.folding.states import IDLE, Members, States
from fathom.analysis.intervals import Array, Spans

EDGES_NS = (1000.0, 3000.0)  # where the parts at either end of a stretch stop
SHARE = 0.4  # of a stretch, which the parts at one end may take
MIDDLE_NS, MOST_MIDDLES = 8000.0, 6  # the parts in between
SHORTEST_NS = 8000.0  # stretches that are divided
DIFFERENT = 1.2  # the ratio of neighbouring lengths from which on they are of different work
COMMON = 0.05  # of a state's time, which each of its lengths must hold
_EDGES = len(EDGES_NS)


class Parts(States, frozen=True):
    """Stretches cut into parts: `state` numbers these, `members` are those of their states."""

    states_of_parts: Array
    middles: Array

    @property
    def owner(self) -> Array:
        """The state of each part."""
        return self.states_of_parts

    @property
    def level(self) -> Array:
        """The middle part that each belongs to."""
        return self.middles


class Length(NamedTuple):
    """Stretches of one state, from `least` nanoseconds on: their first part's number, and their middles."""

    least: float
    first: int
    middles: int


def parts_of(states: dict[int, States], various: Collection[int] = ()) -> dict[int, Parts]:
    """The parts of every burst, numbered alike in all; idle time is one part, number IDLE.

    Families that are `various` do different work at every length, and not only where lengths lie apart.
    """
    lengths, owner, level = _numbered(_lengths(states, various))
    members = next(iter(states.values())).members if states else []
    named = [members[state] for state in owner]
    return {b: _cut(one, lengths, named, np.array(owner), np.array(level)) for b, one in states.items()}


def _lengths(states: dict[int, States], various: Collection[int]) -> list[list[Array]]:
    """The lengths of each state's stretches in all bursts, those of different work apart."""
    members = max((one.members for one in states.values()), key=len)
    each = [_spread if set(various).intersection(one) else _apart for one in members]
    state = np.concatenate([one.state for one in states.values()])
    length = np.concatenate([one.spans.ends - one.spans.starts for one in states.values()])
    order = np.lexsort((length, state))
    bounds = np.searchsorted(state[order], np.arange(len(members) + 1))
    ranges = zip(each, pairwise(bounds), strict=True)
    return [parted(length[order][first:last]) for parted, (first, last) in ranges]


def _apart(lengths: Array) -> list[Array]:
    """The sorted lengths, parted where neighbours differ and either side holds enough of the time."""
    if not len(lengths):
        return [lengths]
    time = np.cumsum(lengths) / lengths.sum()
    cuts, held = [], 0.0
    for gap in np.flatnonzero(lengths[1:] > DIFFERENT * np.maximum(lengths[:-1], 1)):
        if min(time[gap] - held, 1 - time[gap]) >= COMMON:
            cuts.append(gap + 1)
            held = time[gap]
    return np.split(lengths, cuts)


def _spread(lengths: Array) -> list[Array]:
    """The sorted lengths, parted so that those of one part differ little, and each holds enough of the time.

    One value for all would lean to the long ones, of which a sample shows more.
    """
    time = np.cumsum(lengths) / max(lengths.sum(), 1)
    cuts, first, held = [], 0, 0.0
    while first < len(lengths):
        unlike = np.searchsorted(lengths, DIFFERENT * lengths[first], "right")
        first = max(int(unlike), int(np.searchsorted(time, held + COMMON)) + 1)
        held = time[min(first, len(time)) - 1]
        if 1 - held >= COMMON:
            cuts.append(first)
    return np.split(lengths, cuts)


def _numbered(lengths: list[list[Array]]) -> tuple[list[list[Length]], list[int], list[int]]:
    """Each state's lengths; each part's state, and the part whose value it has where samples do not tell."""
    found: list[list[Length]] = []
    owner: list[int] = []
    level: list[int] = []
    for state, kinds in enumerate(lengths):
        found.append([])
        for kind in kinds if state != IDLE else kinds[:1]:
            usual = float(np.median(kind)) if len(kind) and state != IDLE else 0.0
            divided = usual >= SHORTEST_NS
            middles = int(np.clip(usual // MIDDLE_NS, 1, MOST_MIDDLES)) if divided else 0
            least = float(kind[0]) if found[state] else 0.0
            found[state].append(Length(least, len(owner), middles))
            count = 2 * _EDGES + middles if divided else 1
            level += [len(owner) + count // 2] * count
            owner += [state] * count
    return found, owner, level


def _cut(
    states: States, lengths: list[list[Length]], members: list[Members], owner: Array, level: Array
) -> Parts:
    first, middles = _kinds(states, lengths)
    starts, ends, numbers = [], [], []
    for count in np.unique(middles):
        mine = middles == count
        points = _points(states.spans.starts[mine], states.spans.ends[mine], int(count))
        starts.append(points[:-1].ravel())
        ends.append(points[1:].ravel())
        numbers.append((first[mine] + np.arange(len(points) - 1)[:, None]).ravel())
    pieces = Spans(*(np.concatenate([np.zeros(0, np.int64), *times]) for times in (starts, ends)))
    order = np.argsort(pieces.starts, kind="stable")
    order = order[pieces.ends[order] > pieces.starts[order]]
    spans = Spans(pieces.starts[order], pieces.ends[order])
    number = np.concatenate([np.zeros(0, np.int64), *numbers])[order]
    return Parts(spans, number, members, owner, level)


def _kinds(states: States, lengths: list[list[Length]]) -> tuple[Array, Array]:
    """Each stretch's first part and number of middles, by its state and length."""
    took = states.spans.ends - states.spans.starts
    begins = np.cumsum([0, *(len(kinds) for kinds in lengths)])
    kind = begins[states.state]
    for state, kinds in enumerate(lengths):
        if len(kinds) > 1:
            mine = states.state == state
            least = [one.least for one in kinds]
            kind[mine] = begins[state] + np.searchsorted(least, took[mine], "right") - 1
    first, middles = (
        np.array([getattr(one, of) for kinds in lengths for one in kinds], np.int64)
        for of in ("first", "middles")
    )
    return first[kind], middles[kind]


def _points(starts: Array, ends: Array, middles: int) -> Array:
    """Where the parts of stretches begin, and the ends; no middles: a stretch is one part."""
    if not middles:
        return np.stack((starts, ends))
    share = SHARE * np.arange(1, _EDGES + 1) / _EDGES
    edge = np.minimum(np.array(EDGES_NS)[:, None], share[:, None] * (ends - starts)).astype(np.int64)
    low, high = starts + edge[-1], ends - edge[-1]
    inner = low + (np.linspace(0, 1, middles + 1)[1:-1, None] * (high - low)).astype(np.int64)
    return np.vstack((starts, starts + edge, inner, ends - edge[::-1], ends))
