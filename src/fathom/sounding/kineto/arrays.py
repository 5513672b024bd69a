"""Columns of a trace while it is read: integers, with indices for texts and NULL for missing values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

NULL = np.iinfo(np.int64).min  # stands for null in arrays of integers
_INTEGER = re.compile(r"-?[0-9]+")

Arrays = dict[str, np.ndarray]


class Index(dict[Any, int]):
    """Maps each key to an index, in order of appearance, and keeps the text that `make` returns for it."""

    def __init__(self, make: Callable[[Any], str | None] = lambda key: key) -> None:
        super().__init__()
        self._make = make
        self._texts: list[str | None] = []

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self._texts)
        self._texts.append(self._make(key))
        return number

    def of(self, keys: list[Any]) -> np.ndarray:
        """Return the indices of `keys`; new keys get the next indices."""
        if all_missing(keys):
            return np.full(len(keys), self[None], np.int32)
        return np.fromiter(map(self.__getitem__, keys), np.int32, len(keys))

    def texts(self) -> pl.Series:
        """Return the text of each index."""
        return pl.Series(self._texts, dtype=pl.String)


class Table:
    """Columns of integers that grow by one block at a time."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in names}

    def add(self, arrays: Arrays) -> None:
        """Append one block of every column."""
        for name, parts in self._parts.items():
            parts.append(arrays[name])

    def take(self) -> Arrays:
        """Return the joined columns and release the blocks; the table can only be taken once."""
        nothing = [np.empty(0, np.int64)]
        return {name: np.concatenate(self._parts.pop(name) or nothing) for name in list(self._parts)}


def nullable(array: np.ndarray) -> pl.Series:
    """Return the array as a column, with null for NULL."""
    column = pl.Series(array)
    missing = array == NULL
    return column.set(pl.Series(missing), None) if missing.any() else column


def ints(values: Sequence[Any]) -> np.ndarray:
    """Return int64 values of integers or their text, and NULL for other values."""
    if all_missing(values):
        return np.full(len(values), NULL)
    try:
        array = np.array(values)
    except (OverflowError, ValueError):
        array = np.array([], object)
    if array.dtype == np.int64 and array.ndim == 1:
        return array
    return np.array([_int(value) for value in values], np.int64)


def _int(value: Any) -> int:
    if isinstance(value, str):  # as HIP writes some
        value = int(value) if len(value) < 20 and _INTEGER.fullmatch(value) else None
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if is_integer and NULL < value <= -(NULL + 1) else NULL


def all_missing(values: Sequence[Any]) -> bool:
    return values[0] is None and values.count(None) == len(values)
