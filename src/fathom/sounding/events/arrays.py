"""Columns of a trace while it is read: integers, with indices for texts and NULL for missing values.

Decimal microseconds become integer nanoseconds, exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import polars as pl
from msgspec import Raw

NULL = np.iinfo(np.int64).min  # stands for null in arrays of integers
_INTEGER = re.compile(r"-?[0-9]+")

Arrays = dict[str, np.ndarray]
DAMAGED = np.iinfo(np.int64).min  # stands for a time that is missing or impossible
FLOAT_HOLDS_US = 2.0**43  # up to here, float64 is exact to half a nanosecond
_LIMIT_US = 2**52  # the year 2112; later times are damaged, and near int64's limit in ns


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


def integers(name: str, values: list[Any]) -> pl.Series:
    """Return integers or their text as a column, with null for other values."""
    return nullable(ints(values) if values else np.empty(0, np.int64)).cast(pl.Int64).alias(name)


def all_missing(values: Sequence[Any]) -> bool:
    return values[0] is None and values.count(None) == len(values)


class InexactError(ValueError):
    """The times were decoded as float64, which is too coarse for them."""


def to_ns(values: Sequence[Any]) -> np.ndarray:
    """Convert microseconds (int, float or None, or all slices of text) to int64 nanoseconds.

    Invalid times become DAMAGED. Raises InexactError if a float cannot resolve nanoseconds.
    """
    if values and isinstance(values[0], Raw):
        return np.array([_exact(bytes(value)) for value in values], np.int64)
    numbers = _numbers(values)
    good = np.abs(numbers) < _LIMIT_US  # false for NaN
    numbers = np.where(good, numbers, 0)
    if numbers.dtype.kind == "i":
        return numbers * 1000 + np.where(good, 0, DAMAGED)
    if (np.abs(numbers) >= FLOAT_HOLDS_US).any():
        return _integers(values, good)
    integers = np.floor(numbers)
    exact = integers.astype(np.int64) * 1000 + np.rint((numbers - integers) * 1e3).astype(np.int64)
    return np.where(good, exact, DAMAGED)


def _numbers(values: Sequence[Any]) -> np.ndarray:
    try:
        numbers = np.array(values)
    except OverflowError:
        numbers = np.array(values, object)
    if numbers.dtype.kind in "if":
        return numbers
    return np.array([_approximate(value) for value in values], np.float64)


def _approximate(value: int | float | None) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:
        return float("inf")


def _integers(values: Sequence[Any], good: np.ndarray) -> np.ndarray:
    """Convert large times of which some are missing: integers are still exact, floats are not."""
    if any(isinstance(value, float) and value >= FLOAT_HOLDS_US for value in values):
        raise InexactError
    pairs = zip(values, good.tolist(), strict=True)
    return np.array([round(value * 1000) if usable else DAMAGED for value, usable in pairs], np.int64)


def _exact(text: bytes) -> int:
    integer, _, part = text.partition(b".")
    if len(part) == 3 and part.isdigit() and len(integer) < 17 and integer.isdigit():
        time = int(integer + part)
        return time if time < _LIMIT_US * 1000 else DAMAGED
    try:
        number = Decimal(text.decode())
        return round(number * 1000) if abs(number) < _LIMIT_US else DAMAGED
    except (InvalidOperation, UnicodeDecodeError):
        return DAMAGED
