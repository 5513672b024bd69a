"""Divide states into parts: cut stretches from start to end, separately for clearly different lengths.

Counters are not constant during a launch: blocks start and end one after the other, tensor cores wait for the
first tiles, and a few blocks still run after the others have finished. With one value per state, the ends of
launches next to a gap or another kernel would bias the fit. Instead, each part has a value, and a state's
value is the mean of its parts over time. Launches of one family with different lengths do different work.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.folding.states import IDLE, Members, States
from fathom.analysis.intervals import Array, Spans

EDGES_NS = (1000.0, 3000.0)  # from either end of a stretch: the bounds of its first and last parts
SHARE = 0.4  # largest share of a stretch for the parts at one end
MIDDLE_NS, MOST_MIDDLES = 8000.0, 6  # length of the parts in between, and their largest count
SHORTEST_NS = 8000.0  # shorter stretches are not divided
DIFFERENT = 1.2  # neighbouring lengths with a larger ratio are different work
COMMON = 0.05  # least share of a state's time for each of its lengths
_EDGES = len(EDGES_NS)


class Parts(States, frozen=True):
    """States whose stretches are cut into parts: `state` has part indices, `members` families per part."""

    states_of_parts: Array
    middles: Array

    @property
    def owner(self) -> Array:
        """The index of the state of each part."""
        return self.states_of_parts

    @property
    def level(self) -> Array:
        """The middle part of each part's stretch, which gives its value if samples are missing."""
        return self.middles


class Length(NamedTuple):
    """Stretches of a state that last at least `least` ns: index of the `first` part, count of `middles`."""

    least: float
    first: int
    middles: int


def parts_of(states: dict[int, States], various: Collection[int] = ()) -> dict[int, Parts]:
    """Return the parts of every burst, with the same indices; idle time is a single part with index IDLE.

    Families in `various` do different work at every length, even if lengths differ little.
    """
    lengths, owner, level = _numbered(_lengths(states, various))
    members = next(iter(states.values())).members if states else []
    named = [members[state] for state in owner]
    return {
        burst: _cut(own, lengths, named, np.array(owner), np.array(level)) for burst, own in states.items()
    }


def _lengths(states: dict[int, States], various: Collection[int]) -> list[list[Array]]:
    """Return the sorted lengths of each state's stretches over all bursts, split where the work differs."""
    members = max((burst.members for burst in states.values()), key=len)
    each = [_split_evenly if set(various).intersection(families) else _split_at_jumps for families in members]
    state = np.concatenate([burst.state for burst in states.values()])
    length = np.concatenate([burst.spans.ends - burst.spans.starts for burst in states.values()])
    order = np.lexsort((length, state))
    bounds = np.searchsorted(state[order], np.arange(len(members) + 1))
    ranges = zip(each, pairwise(bounds), strict=True)
    return [split(length[order][first:last]) for split, (first, last) in ranges]


def _split_at_jumps(lengths: Array) -> list[Array]:
    """Split sorted lengths where neighbours differ and both sides hold enough of the time."""
    if not len(lengths):
        return [lengths]
    time = np.cumsum(lengths) / lengths.sum()
    cuts, before = [], 0.0
    for gap in np.flatnonzero(lengths[1:] > DIFFERENT * np.maximum(lengths[:-1], 1)):
        if min(time[gap] - before, 1 - time[gap]) >= COMMON:
            cuts.append(gap + 1)
            before = time[gap]
    return np.split(lengths, cuts)


def _split_evenly(lengths: Array) -> list[Array]:
    """Split sorted lengths so that each part has similar lengths and enough of the time.

    One value for all lengths would be biased to long stretches, which fill more of a sample.
    """
    time = np.cumsum(lengths) / max(lengths.sum(), 1)
    cuts, first, before = [], 0, 0.0
    while first < len(lengths):
        unlike = np.searchsorted(lengths, DIFFERENT * lengths[first], "right")
        first = max(int(unlike), int(np.searchsorted(time, before + COMMON)) + 1)
        before = time[min(first, len(time)) - 1]
        if 1 - before >= COMMON:
            cuts.append(first)
    return np.split(lengths, cuts)


def _numbered(lengths: list[list[Array]]) -> tuple[list[list[Length]], list[int], list[int]]:
    """Return each state's lengths; per part its state, and the part that replaces it without samples."""
    numbered: list[list[Length]] = []
    owner: list[int] = []
    level: list[int] = []
    for state, kinds in enumerate(lengths):
        numbered.append([])
        for kind in kinds if state != IDLE else kinds[:1]:
            usual = float(np.median(kind)) if len(kind) and state != IDLE else 0.0
            divided = usual >= SHORTEST_NS
            middles = int(np.clip(usual // MIDDLE_NS, 1, MOST_MIDDLES)) if divided else 0
            least = float(kind[0]) if numbered[state] else 0.0
            numbered[state].append(Length(least, len(owner), middles))
            count = 2 * _EDGES + middles if divided else 1
            level += [len(owner) + count // 2] * count
            owner += [state] * count
    return numbered, owner, level


def _cut(
    states: States, lengths: list[list[Length]], members: list[Members], owner: Array, level: Array
) -> Parts:
    first, middles = _kinds(states, lengths)
    starts, ends, numbers = [], [], []
    for count in distinct(middles):
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
    """Return the first part and the number of middle parts of each stretch, by its state and length."""
    took = states.spans.ends - states.spans.starts
    begins = np.cumsum([0, *(len(kinds) for kinds in lengths)])
    kind = begins[states.state]
    for state, kinds in enumerate(lengths):
        if len(kinds) > 1:
            mine = states.state == state
            least = [length.least for length in kinds]
            kind[mine] = begins[state] + np.searchsorted(least, took[mine], "right") - 1
    first, middles = (
        np.array([getattr(length, field) for kinds in lengths for length in kinds], np.int64)
        for field in ("first", "middles")
    )
    return first[kind], middles[kind]


def _points(starts: Array, ends: Array, middles: int) -> Array:
    """Return the start of each part of the stretches, and the end; without middles, a stretch is one part."""
    if not middles:
        return np.stack((starts, ends))
    share = SHARE * np.arange(1, _EDGES + 1) / _EDGES
    edge = np.minimum(np.array(EDGES_NS)[:, None], share[:, None] * (ends - starts)).astype(np.int64)
    low, high = starts + edge[-1], ends - edge[-1]
    inner = low + (np.linspace(0, 1, middles + 1)[1:-1, None] * (high - low)).astype(np.int64)
    return np.vstack((starts, starts + edge, inner, ends - edge[::-1], ends))
