"""Shapes and dtypes as the profiler wrote them. Few texts differ, and many ops have each: they are kept."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any


@lru_cache(1 << 14)
def shapes_of(text: str | None) -> list[list[int]]:
    """`[[64, 128], []]` as lists; what is malformed, or a list of tensors, is []."""
    return [one if _is_shape(one) else [] for one in _list(text)]


@lru_cache(1 << 14)
def lists_of(text: str | None) -> list[list[int]]:
    """The shapes in the first argument, where that is a list of tensors; else []."""
    first = next(iter(_list(text)), None)
    listed = isinstance(first, list) and bool(first) and all(_is_shape(one) for one in first)
    return list(first) if isinstance(first, list) and listed else []


@lru_cache(1 << 14)
def dtypes_of(text: str | None) -> list[str]:
    """`["float", ""]` as strings."""
    return [str(one) for one in _list(text)]


def _list(text: str | None) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _is_shape(one: Any) -> bool:
    return isinstance(one, list) and all(type(size) is int and size >= 0 for size in one)


def blocks_of(grid: str | None) -> int | None:
    """`64x8x1` as 512; None where it is not known."""
    sides = (grid or "").split("x")
    if not all(side.isdigit() for side in sides):
        return None
    count = 1
    for side in sides:
        count *= int(side)
    return count
