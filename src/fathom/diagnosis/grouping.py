"""Sums, counts and lists by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def summed(pairs: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return the sum of the numbers for each key, in order of first occurrence."""
    sums: dict[Key, float] = {}
    for key, number in pairs:
        sums[key] = sums.get(key, 0.0) + number
    return sums


def grouped(values: Iterable[Value], key: Callable[[Value], Key]) -> dict[Key, list[Value]]:
    """Return the list of values for each key, in order."""
    groups: dict[Key, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return the names as text; if there are more than `most`, each name once with its number."""
    if len(names) <= most:
        return ", ".join(names)
    counts = Counter(names)
    shown = [f"{count} × {name}" if count > 1 else name for name, count in list(counts.items())[:most]]
    more = len(names) - sum(list(counts.values())[:most])
    return ", ".join(shown) + (f" and {more} more" if more else "")
