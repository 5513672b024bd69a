"""The frontier of a sweep: tokens per second of the server against those of each user, and its knee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fathom.load.results import Load, Point, Sweep

LEAST = 3  # valid points that have a knee


def frontier(loads: Sequence[Load]) -> Sweep:
    """Mark the points that no other one beats, and the knee: the one farthest from the line of the ends."""
    valid = [load for load in loads if not load.refusals and load.tokens_per_s_per_user is not None]
    best = [load for load in valid if not any(_beats(other, load) for other in valid)]
    best.sort(key=lambda load: load.tokens_per_s)
    knee = _knee(best) if len(best) >= LEAST else None
    points = [Point(load, load in best, load is knee) for load in loads]
    return Sweep(points, None if knee is None else knee.rate)


def _place(load: Load) -> tuple[float, float]:
    return load.tokens_per_s, load.tokens_per_s_per_user or 0.0


def _beats(load: Load, other: Load) -> bool:
    a, b = _place(load), _place(other)
    return a != b and a[0] >= b[0] and a[1] >= b[1]


def _knee(best: Sequence[Load]) -> Load | None:
    """Return the point farthest above the line between the ends, with both axes scaled to 1."""
    places = np.array([_place(load) for load in best])
    spans = np.ptp(places, axis=0)
    if not spans.all():
        return None
    x, y = ((places - places.min(axis=0)) / spans).T
    above = x + y - 1.0  # the line runs from (0, 1) to (1, 0)
    return best[int(np.argmax(above))] if above.max() > 0 else None
