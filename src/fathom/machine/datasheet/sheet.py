"""A datasheet: published figures keyed by the ids of ceilings."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from fathom.machine.ceilings import Ceiling

_UNITS = {
    "FLOP/s": ("FLOP/s", 1.0),
    "OP/s": ("FLOP/s", 1.0),
    "B/s": ("B/s", 1.0),
    "B": ("B", 1.0),
    "Hz": ("Hz", 1.0),
    "W": ("W", 1.0),
}
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2.0**10, "Mi": 2.0**20}
# Ceilings that a figure of another name bounds; the longest matching prefix wins.
_FIGURE_OF = {
    "hbm.": "hbm",
    "copy.h2d": "pcie",
    "copy.d2h": "pcie",
    "copy.peer": "link",
    "link.peer": "link",
    "collective.": "link",
    "attention.forward.": "matmul.",
    "attention.backward.": "matmul.",
    "host.read": "host.memory",
    "host.copy": "host.memory",
    "host.triad": "host.memory",
}


@dataclass(frozen=True)
class Figure:
    """A published value: `unit` is B/s, FLOP/s, 1/s, B, Hz or W, or empty for a count."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Sheet:
    """The published figures of one chip. Keys: `hbm`, `matmul.bf16`, `vector.fp32`, `link`, `pcie` (each per
    direction), `power`, and the chip's `sms`, `clock`, `l2`, `memory`."""

    name: str
    figures: dict[str, Figure]

    def figure(self, ceiling: str) -> Figure | None:
        """Return the figure that bounds a ceiling (`hbm.copy`, `matmul.bf16.sustained`), or one by key."""
        name = ceiling.removesuffix(".sustained")
        if name in self.figures:
            return self.figures[name]
        begin = max((start for start in _FIGURE_OF if name.startswith(start)), key=len, default=None)
        if begin is None:
            return None
        target = _FIGURE_OF[begin]
        return self.figures.get(target + name[len(begin) :] if target.endswith(".") else target)


def quantity(words: Any) -> tuple[float, str]:
    """Parse `4.8 TB/s` to (4.8e12, "B/s"); a bare number is a count. Raises ValueError."""
    if isinstance(words, int | float):
        return float(words), ""
    parsed = re.fullmatch(r"([\d.]+) ([kMGTP]|Ki|Mi)?(FLOP/s|OP/s|B/s|B|Hz|W)", str(words))
    if parsed is None:
        raise ValueError(f"{words!r} is not a datasheet quantity")
    unit, scale = _UNITS[parsed.group(3)]
    return float(parsed.group(1)) * scale * _PREFIXES[parsed.group(2) or ""], unit


def beside(ceiling: Ceiling, sheet: Sheet | None) -> dict[str, Any] | None:
    """Return the published figure for a measured ceiling: value, unit, source, and measured fraction of it.

    None if nothing is published or the units differ.
    """
    figure = sheet.figure(ceiling.id) if sheet else None
    if figure is None or figure.unit != ceiling.unit or figure.value <= 0:
        return None
    return {**asdict(figure), "fraction": ceiling.value / figure.value}
