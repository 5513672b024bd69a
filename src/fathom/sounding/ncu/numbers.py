"""Parse numbers in the locale of the machine that ran ncu: 1,234.5 or 1.234,5 or 1 234,5."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?")
_GROUPING = re.compile(r"(?<=\d)['’\s\u00a0\u202f](?=\d)")
_INSTANCES = re.compile(r"\s\(.*\)$", re.DOTALL)  # `5 (1; 4)`: the instances of a metric, after its value
_ABSENT = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "-"))


class TwoNotationsError(ValueError):
    """Numbers of one file use both the point and the comma as decimal mark."""


def is_absent(text: str) -> bool:
    """Return whether ncu reports no value; `(!)` marks a value that ncu does not trust."""
    return text.lower() in _ABSENT or text.startswith("(!)")


def plain(text: str) -> str | None:
    """Return the number in `text` without grouping spaces and apostrophes; None if it is not a number."""
    bare = _GROUPING.sub("", _INSTANCES.sub("", text.strip()))
    return bare if _NUMBER.fullmatch(bare) else None


def decimal_mark(numbers: Iterable[str]) -> str:
    """Return the decimal mark of `numbers`, by default the point. Raises TwoNotationsError if they differ."""
    marks = {mark for number in numbers if (mark := _mark_of(number))}
    if len(marks) > 1:
        raise TwoNotationsError
    return marks.pop() if marks else "."


def _mark_of(number: str) -> str | None:
    """Return the decimal mark of a number, or None if ambiguous: 1,234 may be a thousand or a fraction."""
    digits = number.lower().partition("e")[0]
    point, comma = digits.rfind("."), digits.rfind(",")
    if point >= 0 and comma >= 0:
        return digits[max(point, comma)]
    if point < 0 and comma < 0:
        return None
    mark, other = (".", ",") if point >= 0 else (",", ".")
    before, _, after = digits.lstrip("+-").partition(mark)
    if mark in after:
        return other
    return mark if len(after) != 3 or len(before) > 3 or before == "0" else None


def to_float(number: str, mark: str) -> float:
    """Return the value of a plain number with the decimal mark `mark`."""
    other = "," if mark == "." else "."
    return float(number.replace(other, "").replace(mark, "."))
