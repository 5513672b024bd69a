"""Which pieces of one step correspond to those of another: by what was launched, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

import numpy as np

Pairs = np.ndarray  # rows of (position in the first, position in the second), ascending in both
LEAST_RUN = 2  # matches of a single piece between others that differ are chance


def pairs(one: np.ndarray, other: np.ndarray) -> Pairs:
    """Positions of equal codes in both sequences: all of them where they are equal, else of common stretches.

    What begins and what ends alike is paired first, so that only the part that differs is searched.
    """
    short = min(len(one), len(other))
    if len(one) == len(other) and (one == other).all():
        return _steps(0, 0, len(one))
    head = _alike(one[:short], other[:short])
    rest = short - head
    tail = _alike(one[len(one) - rest :][::-1], other[len(other) - rest :][::-1])
    middle = _blocks(one[head : len(one) - tail].tolist(), other[head : len(other) - tail].tolist())
    found = [(head + a, head + b, size) for a, b, size in middle]
    stretches = [(0, 0, head), *found, (len(one) - tail, len(other) - tail, tail)]
    return np.concatenate([_steps(*stretch) for stretch in stretches])


def _alike(one: np.ndarray, other: np.ndarray) -> int:
    """How many of the first codes are equal."""
    differ = np.flatnonzero(one != other)
    return int(differ[0]) if len(differ) else len(one)


def _blocks(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int, int]]:
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return [(a, b, size) for a, b, size in blocks if size >= LEAST_RUN]


def _steps(first: int, second: int, size: int) -> Pairs:
    along = np.arange(size)
    return np.stack([first + along, second + along], axis=1)


def nearest(wanted: np.ndarray, known: Iterable[np.ndarray]) -> int | None:
    """The position of the known sequence that shares most codes with `wanted`; None where none shares any."""
    counts = Counter(wanted.tolist())
    shared = [(counts & Counter(codes.tolist())).total() for codes in known]
    best = max(range(len(shared)), key=lambda at: (shared[at], at), default=None)
    return best if best is not None and shared[best] else None
