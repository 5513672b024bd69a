"""Detect a settled step time robustly: the medians of two consecutive small windows agree."""

from __future__ import annotations

from collections.abc import Sequence

TOLERANCE = 0.1
LASTING = 0.2
SMALLEST, LARGEST = 2, 8


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def settled(durations: Sequence[float]) -> bool:
    """Whether the last two windows of `durations` (any unit) agree within 10 % or within their noise."""
    width = min(LARGEST, max(SMALLEST, len(durations) // 4))
    if len(durations) < 2 * width:
        return False
    before, after = durations[-2 * width : -width], durations[-width:]
    middle = median(after)
    noise = median([abs(value - middle) for value in after])
    return abs(median(before) - middle) <= max(TOLERANCE * middle, 2 * noise)


def quicker(before: float, durations: Sequence[float]) -> bool:
    """Whether the median of `durations` is below `before` by more than 20 % and their noise."""
    middle = median(durations)
    noise = median([abs(value - middle) for value in durations])
    return before - middle > max(LASTING * middle, 2 * noise)
