"""What one state is made of: beginnings, middles and ends of its stretches, and stretches of different lengths.

Counters are not level within a launch: blocks start and end one after the other, tensor cores wait for the first
tiles, results are written last. Such edges lie beside gaps and beside other kernels, so a fit of one value a state
takes them for what runs there. Each part has a value of its own instead, and a state the mean of its parts over
its time, whatever the course within a launch. Launches of one family that differ in length do different work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fathom.analysis.folding.states import IDLE, Members, States
from fathom.analysis.intervals import Array, Spans

EDGES_NS = (1000.0, 3000.0)  # where the parts at either end of a stretch stop
SHARE = 0.4  # of a stretch, which the parts at one end may take
SHORTEST_NS = 4000.0  # stretches that are divided
DIFFERENT = 1.2  # the ratio of neighbouring lengths from which on they are of different work
COMMON = 0.05  # of a state's time, which each of its lengths must hold
_COUNT = 2 * len(EDGES_NS) + 1
_MIDDLE = len(EDGES_NS)


@dataclass(frozen=True)
class Parts(States):
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


def parts_of(states: dict[int, States]) -> dict[int, Parts]:
    """The parts of every burst, numbered alike in all; idle time is one part, number IDLE."""
    kinds = _lengths(states)
    first, owner, level = _numbered(kinds)
    members = next(iter(states.values())).members if states else []
    named = [members[state] for state in owner]
    return {b: _cut(one, kinds, first, named, owner, level) for b, one in states.items()}


def _lengths(states: dict[int, States]) -> list[Array]:
    """By state the lengths at which another kind of stretch begins; whether a state is divided at all."""
    count = max((len(one.members) for one in states.values()), default=1)
    state = np.concatenate([one.state for one in states.values()])
    length = np.concatenate([one.spans.ends - one.spans.starts for one in states.values()])
    order = np.lexsort((length, state))
    bounds = np.searchsorted(state[order], np.arange(count + 1))
    return [_limits(length[order][first:last]) for first, last in pairwise(bounds)]


def _limits(sorted_lengths: Array) -> Array:
    """Where neighbouring lengths lie apart, with enough of the state's time to either side."""
    if not len(sorted_lengths) or sorted_lengths[-1] < SHORTEST_NS:
        return np.zeros(0)
    time = np.cumsum(sorted_lengths) / sorted_lengths.sum()
    gaps = np.flatnonzero(sorted_lengths[1:] > DIFFERENT * np.maximum(sorted_lengths[:-1], 1))
    limits, held = [0.0], 0.0
    for gap in gaps:
        if min(time[gap] - held, 1 - time[gap]) >= COMMON:
            limits.append(float(sorted_lengths[gap + 1]))
            held = time[gap]
    return np.array(limits)


def _numbered(kinds: list[Array]) -> tuple[Array, Array, Array]:
    """The number of each state's first part; the state and the level of each part."""
    counts = np.array([max(len(limits) * _COUNT, 1) for limits in kinds])
    counts[IDLE] = 1
    first = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(kinds)), counts)
    within = np.arange(counts.sum()) - first[owner]
    middle = first[owner] + within // _COUNT * _COUNT + _MIDDLE
    return first, owner, np.where(counts[owner] > 1, middle, first[owner])


def _cut(
    states: States, kinds: list[Array], first: Array, members: list[Members], owner: Array, level: Array
) -> Parts:
    starts, ends = states.spans.starts, states.spans.ends
    length = ends - starts
    edge = np.minimum(np.outer(EDGES_NS, np.ones(len(length))), _shares(length))
    edge = np.where(length < SHORTEST_NS, 0, edge).astype(np.int64)
    points = np.vstack((starts, starts + edge, ends - edge[::-1], ends))
    divided = np.array([len(limits) > 0 for limits in kinds])[states.state]
    number = first[states.state] + _kind(states.state, length, kinds) * _COUNT + np.arange(_COUNT)[:, None]
    number = np.where(divided, number, first[states.state])
    pieces = Spans(points[:-1].T.ravel(), points[1:].T.ravel())
    kept = pieces.ends > pieces.starts
    spans = Spans(pieces.starts[kept], pieces.ends[kept])
    return Parts(spans, number.T.ravel()[kept], members, owner, level)


def _kind(state: Array, length: Array, kinds: list[Array]) -> Array:
    """Which of its state's lengths each stretch has."""
    found = np.zeros(len(state), np.int64)
    for one in (one for one, limits in enumerate(kinds) if len(limits) > 1):
        mine = state == one
        found[mine] = np.searchsorted(kinds[one], length[mine], "right") - 1
    return found


def _shares(length: Array) -> Array:
    """The most that each part's end may lie from the stretch's own."""
    part = np.arange(1, _MIDDLE + 1)[:, None] / _MIDDLE
    return SHARE * part * length
