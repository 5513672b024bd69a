"""Alignment of two steps by the sequence of their launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

import numpy as np

Pairs = np.ndarray  # rows of (position in the first, position in the second), ascending in both
LEAST_RUN = 2  # single matches between differing pieces are chance


def pairs(first: np.ndarray, other: np.ndarray) -> Pairs:
    """Pairs of positions with equal codes: all if the sequences are equal, else of common stretches.

    The common start and end are paired first, so that only the differing part is searched.
    """
    short = min(len(first), len(other))
    if len(first) == len(other) and (first == other).all():
        return _steps(0, 0, len(first))
    head = _alike(first[:short], other[:short])
    rest = short - head
    tail = _alike(first[len(first) - rest :][::-1], other[len(other) - rest :][::-1])
    middle = _blocks(first[head : len(first) - tail].tolist(), other[head : len(other) - tail].tolist())
    matches = [(head + a, head + b, size) for a, b, size in middle]
    stretches = [(0, 0, head), *matches, (len(first) - tail, len(other) - tail, tail)]
    return np.concatenate([_steps(*stretch) for stretch in stretches])


def _alike(first: np.ndarray, other: np.ndarray) -> int:
    """The length of the common start."""
    differ = np.flatnonzero(first != other)
    return int(differ[0]) if len(differ) else len(first)


def _blocks(first: Sequence[int], other: Sequence[int]) -> list[tuple[int, int, int]]:
    blocks = SequenceMatcher(None, first, other, autojunk=False).get_matching_blocks()
    return [(a, b, size) for a, b, size in blocks if size >= LEAST_RUN]


def _steps(first: int, second: int, size: int) -> Pairs:
    along = np.arange(size)
    return np.stack([first + along, second + along], axis=1)


def nearest(wanted: np.ndarray, known: Iterable[np.ndarray]) -> int | None:
    """The index of the known sequence that shares most codes with `wanted`; None if none shares any."""
    counts = Counter(wanted.tolist())
    shared = [(counts & Counter(codes.tolist())).total() for codes in known]
    best = max(range(len(shared)), key=lambda at: (shared[at], at), default=None)
    return best if best is not None and shared[best] else None
