"""Parse shapes and dtypes as the profiler wrote them; cached, because many ops share the same texts."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_LONGEST = 1 << 20  # characters of a text that is parsed; a list of a thousand tensors takes 20,000


@lru_cache(1 << 14)
def shapes_of(text: str | None) -> list[list[int]]:
    """Parse `[[64, 128], []]` into lists; malformed shapes and lists of tensors become []."""
    return [argument if _is_shape(argument) else [] for argument in _list(text)]


@lru_cache(1 << 14)
def lists_of(text: str | None) -> list[list[int]]:
    """Return the shapes in the first argument if it is a list of tensors, else []."""
    first = next(iter(_list(text)), None)
    listed = isinstance(first, list) and bool(first) and all(_is_shape(tensor) for tensor in first)
    return list(first) if isinstance(first, list) and listed else []


@lru_cache(1 << 14)
def dtypes_of(text: str | None) -> list[str]:
    """Parse `["float", ""]` into strings."""
    return [str(name) for name in _list(text)]


def _list(text: str | None) -> list[Any]:
    try:
        value = json.loads(text) if text and len(text) <= _LONGEST else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
