"""Compare both sides with the machine's measured ceilings, and with the chip's peak."""

from __future__ import annotations

import msgspec

from fathom.machine import Limits, datasheet, limits_of, why_no_limits
from fathom.machine.model import Machine
from fathom.referee.compare.tolerance import SHORT
from fathom.referee.verdict import Comparison, Fraction, Refusal
from fathom.units import GB, NS_PER_S

ABOVE = 1.03  # fraction of a measured ceiling that is beyond its spread
FOOTPRINT = 4  # bytes moved, as a multiple of L2's size, from which nothing is reused from L2
_NAMES = {long: short for short, long in SHORT.items()}


class CallWork(msgspec.Struct):
    """The work of a call. `written`: bytes of results, among `bytes`; `unit`: its arithmetic's ceiling."""

    flops: float | None = None
    bytes: float | None = None
    written: float | None = None
    unit: str | None = None
    source: str = ""

    @property
    def known(self) -> bool:
        return bool(self.flops or self.bytes)

    @property
    def share_written(self) -> float | None:
        """The share of the bytes that are written, 0 to 1."""
        return min(1.0, self.written / self.bytes) if self.bytes and self.written is not None else None


def unit_of(dtype: str) -> str:
    """The matrix ceiling that bounds products of this dtype."""
    return f"matmul.{_NAMES.get(dtype, 'fp32')}"


def placed(comparisons: list[Comparison], work: CallWork, machine: Machine, device: str) -> list[str]:
    """Set both sides' fractions of the ceiling. Returns notes on missing or implausible ceilings."""
    if not work.known:
        return []
    index = 0 if device == "cuda" else None
    limits = limits_of(machine, index)
    if limits is None:
        return [f"No ceilings apply: {why_no_limits(machine, index)}."]
    notes = set()
    for comparison in comparisons:
        for side in (comparison.baseline, comparison.candidate):
            side.ceiling = fraction(side.ns, work, limits, comparison.cache)
            if side.ceiling and side.ceiling.fraction > ABOVE:
                notes.add(f"A side exceeds the measured {side.ceiling.bound}; measure that ceiling again.")
    return sorted(notes)


def fraction(ns: float, work: CallWork, limits: Limits, cache: str) -> Fraction | None:
    """Return the ratio of the work's time at the ceilings to `ns`; None if no ceiling bounds it.

    Work that fits into a cache of unknown rate is compared with the memory's rate, unless it was faster.
    """
    fits = cache != "cold" and (work.bytes or 0) <= limits.cache_bytes
    memory = limits.cache if fits else limits.moving(work.share_written)
    rate = limits.arithmetic.get(work.unit or "")
    needs = {}
    if work.bytes and memory:
        needs[limits.cache_name if fits else limits.memory_name] = NS_PER_S * work.bytes / memory
    if work.flops and rate and work.unit:
        needs[work.unit] = NS_PER_S * work.flops / rate
    if not needs and work.bytes and limits.memory and NS_PER_S * work.bytes <= ns * limits.memory:
        needs[limits.memory_name] = NS_PER_S * work.bytes / limits.memory
    if not needs or not ns > 0:
        return None
    bound = max(needs, key=lambda key: needs[key])
    return Fraction(needs[bound] / ns, bound, needs[bound])


def above(comparisons: list[Comparison]) -> bool:
    """Return whether a candidate exceeds a measured ceiling and should be timed again."""
    return any(c.candidate.ceiling is not None and c.candidate.ceiling.fraction > ABOVE for c in comparisons)


def impossible(comparisons: list[Comparison], work: CallWork, machine: Machine) -> list[Refusal]:
    """Return reasons to refuse a candidate that would exceed the datasheet's peak at the observed clock."""
    gpus = machine.get("gpus") or []
    sheet = datasheet.find(gpus[0]) if gpus else None
    if sheet is None:
        return []
    return [reason for c in comparisons for reason in _impossible(c, work, sheet)]


def _impossible(comparison: Comparison, work: CallWork, sheet: datasheet.Sheet) -> list[Refusal]:
    side, reasons = comparison.candidate, []
    clock = sheet.figure("clock")
    share = side.clock_mhz * 1e6 / clock.value if side.clock_mhz and clock else 1.0
    rate, memory = (amount and NS_PER_S * amount / side.ns for amount in (work.flops, work.bytes))
    peak = sheet.figure(work.unit) if work.unit else None
    if peak and rate and rate > ABOVE * peak.value * share:
        text = f"{rate / 1e12:.0f} TFLOP/s of {peak.value * share / 1e12:.0f} possible"
        reasons.append(Refusal("above-peak", text))
    published, cache = sheet.figure("hbm"), sheet.figure("l2")
    far = comparison.cache == "cold" and (work.bytes or 0) > FOOTPRINT * (cache.value if cache else 0)
    if published and memory and far and memory > ABOVE * published.value:
        text = f"{memory / GB:.0f} GB/s of {published.value / GB:.0f} possible"
        reasons.append(Refusal("above-peak", text))
    return reasons
