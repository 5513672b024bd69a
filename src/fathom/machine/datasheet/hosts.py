"""The datasheet of a host, from rules for processors, because machines with one processor differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fathom.data import load
from fathom.machine.datasheet.sheet import Figure, Sheet


def find_host(host: dict[str, Any]) -> Sheet | None:
    """Return the peak memory bandwidth and matrix rates of the inventory's `host`; None if no rule applies.

    Rates are cores × clock × FLOP per cycle at the kernel's highest clock, which all cores rarely
    hold at once; bandwidth is sockets × channels × 8 B × transfers per second with all channels filled.
    """
    cpu = host.get("cpu") or {}
    figures = dict(_bandwidth(cpu, str(host.get("product") or ""))) | dict(_rates(cpu))
    return Sheet(str(cpu.get("model")), figures) if figures else None


@cache
def _rules() -> dict[str, Any]:
    return load("fathom.machine.datasheet", "cpus")


def _bandwidth(cpu: dict[str, Any], product: str) -> Iterator[tuple[str, Figure]]:
    for row in _rules()["memory"]:
        if _fits(cpu, product, row):
            sockets = cpu.get("sockets") or 1
            value = sockets * row["channels"] * 8 * row["transfers_mhz"] * 1e6
            how = f"{sockets} × {row['channels']} × 8 B × {row['transfers_mhz']} MT/s: {row['source']}"
            yield "host.memory", Figure(value, "B/s", how)
            return


def _rates(cpu: dict[str, Any]) -> Iterator[tuple[str, Figure]]:
    cores, clock = _cores(cpu), cpu.get("clock_max_mhz") or cpu.get("clock_nominal_mhz")
    row = next((row for row in _rules()["rates"] if _fits(cpu, "", row)), None)
    if not (cores and clock and row):
        return
    for dtype, flops in row["flop_per_cycle"].items():
        how = f"{cores} cores × {clock / 1000:.2f} GHz × {flops} FLOP per cycle: {row['source']}"
        yield f"host.matmul.{dtype}", Figure(cores * clock * 1e6 * flops, "FLOP/s", how)


def _cores(cpu: dict[str, Any]) -> int | None:
    """Return the physical cores that a program here may use."""
    physical, usable = cpu.get("physical_cores"), cpu.get("usable_cores")
    if not physical or not usable:
        return physical or None
    return min(physical, max(1, usable // (cpu.get("threads_per_core") or 1)))


def _fits(cpu: dict[str, Any], product: str, row: dict[str, Any]) -> bool:
    exact = all(
        cpu.get(key) in row[key] for key in ("vendor", "family", "model_number", "stepping") if key in row
    )
    features = set(row.get("features", ())) <= set(cpu.get("features") or ())
    return exact and features and bool(re.search(row.get("product", ""), product))
