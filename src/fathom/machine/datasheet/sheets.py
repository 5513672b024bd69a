"""Datasheets: published figures keyed by the ids of ceilings, found for a GPU or a host.

A GPU's is found by the name that the driver reports, a host's by rules for processors, because machines with
one processor differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from fathom.data import load
from fathom.machine.architectures import GUIDE, architecture
from fathom.machine.ceilings import Ceiling
from fathom.machine.model import Cpu, Host, Identity, Published

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
FILES = ("volta", "ampere", "ada", "hopper", "blackwell", "rubin", "cdna3", "cdna4")
_ABOUT = {"source", "divide_by", "because"}


@dataclass(frozen=True)
class Figure:
    """A published value: `unit` is B/s, FLOP/s, 1/s, B, Hz or W, or empty for a count."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Sheet:
    """The published figures of one chip. Keys: `hbm`, `matmul.bf16`, `vector.fp32`, `link`, `pcie` (each per
    direction), `power`, and the chip's `sms`, `clock`, `l2`, `memory`. The maker has announced chips that are
    not sold yet."""

    name: str
    figures: dict[str, Figure]
    announced: bool = False

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


class Processors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processors that a rule of `cpus.yaml` applies to: those with one of the values of each list."""

    vendor: list[str]
    source: str
    family: list[int] | None = None
    model_number: list[int] | None = None
    stepping: list[int] | None = None
    features: list[str] = []  # all of them
    product: str = ""  # a pattern

    def fit(self, cpu: Cpu, product: str) -> bool:
        """Return whether the rule applies to a processor, in a machine called `product`."""
        named = (
            (self.vendor, cpu.get("vendor")),
            (self.family, cpu.get("family")),
            (self.model_number, cpu.get("model_number")),
            (self.stepping, cpu.get("stepping")),
        )
        exact = all(values is None or value in values for values, value in named)
        features = {*self.features} <= {*(cpu.get("features") or ())}
        return exact and features and bool(re.search(self.product, product))


class MemoryRule(Processors, frozen=True):
    """The memory of processors."""

    channels: int  # per socket
    transfers_mhz: int


class RateRule(Processors, frozen=True):
    """The arithmetic of processors."""

    flop_per_cycle: dict[str, int]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `cpus.yaml`."""

    memory: list[MemoryRule]
    rates: list[RateRule]


@cache
def _rules() -> Rules:
    return msgspec.convert(load("fathom.machine.datasheet", "cpus"), Rules)


def quantity(words: Any) -> tuple[float, str]:
    """Parse `4.8 TB/s` to (4.8e12, "B/s"); a bare number is a count. Raises ValueError."""
    if isinstance(words, int | float):
        return float(words), ""
    parsed = re.fullmatch(r"([\d.]+) ([kMGTP]|Ki|Mi)?(FLOP/s|OP/s|B/s|B|Hz|W)", str(words))
    if parsed is None:
        raise ValueError(f"{words!r} is not a datasheet quantity")
    unit = "FLOP/s" if parsed.group(3) == "OP/s" else parsed.group(3)
    return float(parsed.group(1)) * _PREFIXES[parsed.group(2) or ""], unit


def beside(ceiling: Ceiling, sheet: Sheet | None) -> Published | None:
    """Return the published figure for a ceiling; None if nothing is published or the units differ."""
    figure = sheet.figure(ceiling.id) if sheet else None
    if figure is None or figure.unit != ceiling.unit or figure.value <= 0:
        return None
    return {
        "value": figure.value,
        "unit": figure.unit,
        "source": figure.source,
        "fraction": ceiling.value / figure.value,
    }


def find(gpu: Identity) -> Sheet | None:
    """Return the datasheet of an inventory's GPU by its `name`; None for an unlisted chip."""
    name = str(gpu.get("name") or "")
    if not name:  # an imported trace has none
        return None
    return next((sheet for pattern, sheet in sheets() if re.fullmatch(pattern, name, re.I)), None)


def sheets() -> Iterator[tuple[str, Sheet]]:
    """Yield every datasheet with the pattern of its driver names; files are read when they are reached."""
    for name in FILES:
        yield from _sheets(name)


@cache
def _sheets(file: str) -> list[tuple[str, Sheet]]:
    rows = load("fathom.machine.datasheet", file)
    return [(row["matches"], Sheet(row["name"], dict(_figures(row)), "announced" in row)) for row in rows]


def _figures(row: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    for block in row["published"]:
        divisor = block.get("divide_by", 1)
        note = f" ({block['because']}, so divided by {divisor})" if divisor != 1 else ""
        for key, words in block.items():
            if key not in _ABOUT:
                value, unit = quantity(words)
                yield key, Figure(value / divisor, unit, block["source"] + note)
    yield from _derived(row)


def _derived(row: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield rates that makers publish per multiprocessor and clock."""
    merged = {key: words for block in row["published"] for key, words in block.items()}
    family = architecture(row.get("capability"))
    if family is None or not {"sms", "clock"} <= merged.keys():
        return
    sms, (clock, _) = merged["sms"], quantity(merged["clock"])
    at = f"per clock and multiprocessor ({GUIDE}) × {sms} × {clock / 1e9:.3f} GHz"
    shared = family.shared_bytes_per_clock
    yield "shared.read", Figure(sms * clock * shared, "B/s", f"{shared} B {at}")
    if family.special_per_sm:
        special = family.special_per_sm
        yield "vector.special", Figure(sms * clock * special, "1/s", f"{special} {at}")


def find_host(host: Host) -> Sheet | None:
    """Return the peak memory bandwidth and matrix rates of the inventory's `host`; None if no rule applies.

    Rates are cores × clock × FLOP per cycle at the kernel's highest clock, which all cores rarely
    hold at once; bandwidth is sockets × channels × 8 B × transfers per second with all channels filled.
    """
    cpu = host.get("cpu") or {}
    figures = dict(_bandwidth(cpu, str(host.get("product") or ""))) | dict(_rates(cpu))
    return Sheet(str(cpu.get("model")), figures) if figures else None


def _bandwidth(cpu: Cpu, product: str) -> Iterator[tuple[str, Figure]]:
    row = next((row for row in _rules().memory if row.fit(cpu, product)), None)
    if row:
        sockets = cpu.get("sockets") or 1
        value = sockets * row.channels * 8 * row.transfers_mhz * 1e6
        how = f"{sockets} × {row.channels} × 8 B × {row.transfers_mhz} MT/s: {row.source}"
        yield "host.memory", Figure(value, "B/s", how)


def _rates(cpu: Cpu) -> Iterator[tuple[str, Figure]]:
    cores, clock = _cores(cpu), cpu.get("clock_max_mhz") or cpu.get("clock_nominal_mhz")
    row = next((row for row in _rules().rates if row.fit(cpu, "")), None)
    if not (cores and clock and row):
        return
    for dtype, flops in row.flop_per_cycle.items():
        how = f"{cores} cores × {clock / 1000:.2f} GHz × {flops} FLOP per cycle: {row.source}"
        yield f"host.matmul.{dtype}", Figure(cores * clock * 1e6 * flops, "FLOP/s", how)


def _cores(cpu: Cpu) -> int | None:
    """Return the physical cores that a program here may use."""
    physical, usable = cpu.get("physical_cores"), cpu.get("usable_cores")
    if not physical or not usable:
        return physical or None
    return min(physical, max(1, usable // (cpu.get("threads_per_core") or 1)))
