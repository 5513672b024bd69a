"""Convert a trace's decimal microseconds to integer nanoseconds, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from msgspec import Raw

DAMAGED = np.iinfo(np.int64).min  # stands for a time that is missing or impossible
FLOAT_HOLDS_US = 2.0**43  # up to here, float64 is exact to half a nanosecond
_LIMIT_US = 2**52  # the year 2112; later times are damaged, and near int64's limit in ns


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
