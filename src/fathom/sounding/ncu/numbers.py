"""Parse ncu's numbers and units.

Numbers are in the locale of the machine that ran ncu (1,234.5 or 1.234,5 or 1 234,5). Units (`Gbyte/second`,
`us`, `cycle/nsecond`) become base units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?")
_GROUPING = re.compile(r"(?<=\d)['’\s\u00a0\u202f](?=\d)")
_INSTANCES = re.compile(r"\s\(.*\)$", re.DOTALL)  # `5 (1; 4)`: the instances of a metric, after its value
_ABSENT = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "-"))
_WORDS = {
    **dict.fromkeys(("byte", "bytes", "B"), "B"),
    **dict.fromkeys(("second", "seconds", "sec", "s"), "s"),
    **dict.fromkeys(("hz", "Hz", "hertz", "Hertz"), "Hz"),
    **dict.fromkeys(("%", "percent", "pct"), "%"),
    **{word: word for word in ("inst", "cycle", "sector", "request", "warp", "block", "thread", "register")},
}
_PREFIXES = {
    "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
}  # fmt: skip
_SPELLED = {"cycle/s": "Hz"}
_ROLLED = r"\.(sum|avg|min|max)"
_NAMED = {  # unit by pattern of the metric's name, for reports
    r"pct(_of_peak_\w+)?$": "%",
    rf"__time_\w+{_ROLLED}$": "ns",
    rf"__\w*bytes\w*{_ROLLED}$": "byte",
    rf"__\w*bytes\w*{_ROLLED}\.per_second$": "byte/second",
    rf"__cycles_\w+{_ROLLED}$": "cycle",
    rf"__cycles_\w+{_ROLLED}\.per_second$": "cycle/second",
    rf"_sectors\w*{_ROLLED}$": "sector",
    r"^launch__registers_per_thread": "register/thread",
    r"^launch__shared_mem_per_block": "byte/block",
}


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


@cache
def base_unit(unit: str) -> tuple[float, str]:
    """Return the factor and the base unit: (1e9, `B/s`) for `Gbyte/second`; unknown words stay."""
    above, slash, below = unit.strip().partition("/")
    scale, word = _base(above)
    if not slash:
        return scale, word
    under, per = _base(below)
    spelled = f"{word}/{per}"
    return scale / under, _SPELLED.get(spelled, spelled)


@cache
def unit_of(metric: str) -> str:
    """Return the unit of a metric in a report, by its name; empty if unknown."""
    return next((unit for pattern, unit in _NAMED.items() if re.search(pattern, metric)), "")


def _base(word: str) -> tuple[float, str]:
    word = word.strip()
    if word in _WORDS:
        return 1.0, _WORDS[word]
    rest = _WORDS.get(word[1:])
    if rest is not None and rest != "%" and word[0] in _PREFIXES:
        return _PREFIXES[word[0]], rest
    return 1.0, word
