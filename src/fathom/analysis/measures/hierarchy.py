"""The hierarchical roofline: how far a family is below every level of memory and every kind of arithmetic.

After Yang, Kurth, Williams, "Hierarchical Roofline analysis for GPUs" (Concurrency and Computation 32, 2020),
with shares of peak that counters tell in place of counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fathom.analysis.measures.facts import Hardware
from fathom.analysis.measures.results import Level, Measure
from fathom.analysis.measures.worth import UNTOLD

_ARITHMETIC = (
    ("tensor cores", "tensor", "matmul."),
    ("FP32 pipe", "fma", "vector.fp32"),
    ("FP64 pipe", "fp64", "vector.fp64"),
)
_MATRIX = ("matmul.bf16", "matmul.fp16", "matmul.tf32", "matmul.fp8", "matmul.int8", "matmul.fp64")
_DRAM = ("DRAM", "dram", "dram_peak", "share of the memory's peak × its bandwidth")
_L1 = ("L1 and shared", "lsu", "l1_peak", "share of the data stage × 128 B a clock, at most")
_WORTH = "share of its counters' peak × the bytes that it is worth to kernels here whose bytes are known"
_MOST_APART = 2.0  # what a pipe's use stands for, over what the op's formula says
_IDLE = 1.0  # percent of the tensor cores' time
_NO_FLOPS = "the time in which it works tells none, and the op has no formula for them"
_NOT_ITS_WORK = "its use stands for more or less than the op's FLOPs, by over a factor of two"


class _Flops(NamedTuple):
    rate: float
    basis: str


class _Family(NamedTuple):
    """What is known about one family: measures by name, its work, its FLOPs, and the device."""

    measures: dict[str, Measure]
    work: dict[str, Any]
    seconds: float
    on: Hardware
    flops: _Flops | None

    def used(self, name: str) -> tuple[float, float]:
        """A measure in percent as a share, with its error."""
        return self.measures[name].value / 100, self.measures[name].error / 100

    def over(self, rate: float | None) -> float | None:
        """FLOPs a byte."""
        return self.flops.rate / rate if self.flops and rate else None


def levels(measures: list[Measure], work: dict[str, Any], seconds: float, on: Hardware) -> list[Level]:
    """Levels of memory, then kinds of arithmetic, of which anything is known.

    FLOPs are the op's where a formula tells them, else of kernels that leave tensor cores alone at most what
    instructions of the other pipes can do. Without counters DRAM has the bytes that the op must move.
    """
    by_name = {measure.name: measure for measure in measures}
    one = _Family(by_name, work, seconds, on, _flops(by_name, work, seconds, on))
    return [*_dram(one), *_cache(one), *_shares(one, *_L1), *_arithmetic(one), *_formula(one)]


def _flops(by_name: dict[str, Measure], work: dict[str, Any], seconds: float, on: Hardware) -> _Flops | None:
    if work.get("flops_a_launch"):
        return _Flops(work["flops_a_launch"] / seconds, "the op's formula")
    if "tensor" in by_name and by_name["tensor"].value >= _IDLE:
        return None
    peaks = {name: _peak(on, unit, work) for _, name, unit in _ARITHMETIC[1:] if name in by_name}
    rate = sum(by_name[name].value / 100 * peak[0] for name, peak in peaks.items() if peak)
    return _Flops(rate, "instructions of pipes × their peaks, at most") if rate else None


def _peak(on: Hardware, unit: str, work: dict[str, Any]) -> tuple[float, str] | None:
    """The published or measured rate; of tensor cores in the work's own type, else in the commonest."""
    if unit != "matmul.":
        return on.arithmetic(unit)
    own = str(work.get("unit") or "")
    choices = (own, *_MATRIX) if own.startswith(unit) else _MATRIX
    return next((found for choice in choices if (found := on.arithmetic(choice))), None)


def _shares(one: _Family, title: str, name: str, peak: str, basis: str) -> Iterator[Level]:
    """A level of memory that a counter tells as a share of a known peak."""
    if name in one.measures:
        used, error = one.used(name)
        ceiling = one.on.figures.get(peak)
        rate = used * ceiling if ceiling else None
        why = "" if rate else "the device's peak is not known"
        yield Level(title, "memory", used, error, rate, ceiling, "B/s", one.over(rate), basis, why)


def _dram(one: _Family) -> Iterator[Level]:
    yield from _shares(one, *_DRAM)
    least, memory = one.work.get("bytes_a_launch"), one.on.memory()
    if "dram" not in one.measures and least and memory:
        rate = least / one.seconds
        basis = f"bytes that the op must move, of the {memory[1]} bandwidth"
        yield Level("DRAM", "memory", rate / memory[0], 0.0, rate, memory[0], "B/s", one.over(rate), basis)


def _cache(one: _Family) -> Iterator[Level]:
    """L2 under its measured ceiling where sectors are known in bytes, else the share of its peak alone."""
    ceiling = one.on.limits.cache if one.on.limits else None
    traffic = one.measures.get("l2_rate")
    if traffic is not None and (ceiling or "l2" in one.measures):
        used = (traffic.value / ceiling, traffic.error / ceiling) if ceiling else one.used("l2")
        basis = "sectors that multiprocessors ask for × 32 B" if traffic.source == "ncu" else _WORTH
        basis += ", of the measured bandwidth" if ceiling else ""
        rate = traffic.value
        yield Level("L2", "memory", *used, rate, ceiling, "B/s", one.over(rate), basis)
    elif "l2" in one.measures:
        used = one.used("l2")
        yield Level("L2", "memory", *used, None, ceiling, "B/s", None, "share of its counters' peak", UNTOLD)


def _arithmetic(one: _Family) -> Iterator[Level]:
    """The use of each pipe as a share; as FLOP/s where that is the op's work, or counts instructions."""
    for title, name, unit in _ARITHMETIC:
        if name in one.measures and (one.measures[name].value > 0 or name == "tensor"):
            used, error = one.used(name)
            peak = _peak(one.on, unit, one.work)
            rate, why = _stands_for(one, name, used * peak[0]) if peak else (None, "the peak is not known")
            ceiling = peak[0] if peak else None
            yield Level(
                title, "arithmetic", used, error, rate, ceiling, "FLOP/s", None, "use of the pipe", why
            )


def _stands_for(one: _Family, name: str, rate: float) -> tuple[float | None, str]:
    """The FLOP/s that a pipe's use may be given as, or why not."""
    if not rate:
        return rate, ""
    if one.work.get("flops_a_launch") and one.flops:
        near = max(rate / one.flops.rate, one.flops.rate / rate) <= _MOST_APART
        return (rate, "") if near else (None, _NOT_ITS_WORK)
    return (None, _NO_FLOPS) if name == "tensor" else (rate, "")


def _formula(one: _Family) -> Iterator[Level]:
    own = one.on.arithmetic(one.work.get("unit"))
    if own and one.flops and one.work.get("flops_a_launch"):
        rate, basis = one.flops.rate, f"{one.flops.basis}, of the {own[1]} rate"
        unit = str(one.work["unit"])
        yield Level(unit, "arithmetic", rate / own[0], 0.0, rate, own[0], "FLOP/s", None, basis)
