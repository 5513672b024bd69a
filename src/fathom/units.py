"""Conversion factors between units, and numbers as text. Times are in nanoseconds, sizes in bytes."""

import re
from collections.abc import Iterable

NS_PER_US = 1e3
NS_PER_MS = 1e6
NS_PER_S = 1e9
US_PER_MS = 1e3
US_PER_S = 1e6
MS_PER_S = 1e3

KB, MB, GB = 1e3, 1e6, 1e9  # bytes; for data rates and evidence
KIB, MIB, GIB = 2**10, 2**20, 2**30  # bytes; for buffers and memory
_PREFIXES = "kMGT"
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kKMGT])(i?))?B?")


def bytes_of(text: str) -> float | None:
    """Return the bytes of a size such as 500MB or 2GiB; None if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    power = _PREFIXES.index(match[2].replace("K", "k")) + 1 if match[2] else 0
    return float(match[1]) * (KIB if match[3] else 1000) ** power


def ranges(numbers: Iterable[int], separator: str = ", ") -> str:
    """Return numbers as text with ranges: 0-3, 8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return separator.join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)
