"""Convert ncu's units (`Gbyte/second`, `us`, `cycle/nsecond`) to base units."""

from __future__ import annotations

import re
from functools import cache

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
