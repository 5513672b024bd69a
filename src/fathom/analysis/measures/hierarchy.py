"""The hierarchical roofline: the share of each memory level and kind of arithmetic that a family achieves.

It follows Yang, Kurth, Williams, "Hierarchical Roofline analysis for GPUs" (Concurrency and Computation 32,
2020), with counters' shares of peak instead of counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import NamedTuple

from fathom.analysis.measures.facts import Hardware, Launch
from fathom.analysis.measures.results import Level, Measure

_ARITHMETIC = (
    ("tensor cores", "tensor", "matmul."),
    ("FP32 pipe", "fma", "vector.fp32"),
    ("FP64 pipe", "fp64", "vector.fp64"),
)
_MATRIX = ("matmul.bf16", "matmul.fp16", "matmul.tf32", "matmul.fp8", "matmul.int8", "matmul.fp64")
_DRAM = ("DRAM", "dram", "dram_peak", "share of the memory's peak × its bandwidth")
_L1 = ("L1 and shared", "lsu", "l1_peak", "share of the data stage × 128 B a clock, at most")
_WORTH = "share of its counters' peak × that peak in bytes, from kernels of this recording with known bytes"
_LARGEST_RATIO = 2.0  # largest ratio between the FLOPs by a pipe's use and those by the op's formula
_IDLE = 1.0  # per cent of the time: with less use, tensor cores count as idle
_NO_FLOPS = "its busy time does not give FLOPs, and the op has no formula for them"
_NOT_ITS_WORK = "its use and the op's FLOPs differ by over a factor of two"


class _Flops(NamedTuple):
    rate: float
    basis: str


class _Family(NamedTuple):
    """One family: its measures by name, mean launch, device, and FLOP/s."""

    measures: dict[str, Measure]
    launch: Launch
    on: Hardware
    flops: _Flops | None

    def used(self, name: str) -> tuple[float, float]:
        """Return a measure in per cent as a share of 1, with its error."""
        return self.measures[name].value / 100, self.measures[name].error / 100

    def over(self, rate: float | None) -> float | None:
        """Return the FLOPs per byte at this rate in B/s; None if either is unknown."""
        return self.flops.rate / rate if self.flops and rate else None


def levels(measures: list[Measure], launch: Launch, on: Hardware) -> list[Level]:
    """Return the levels of memory, then the kinds of arithmetic, with known figures.

    FLOPs come from the op's formula. Without a formula, kernels that do not use tensor cores execute at most
    the FLOPs of the other pipes' instructions. Without counters, DRAM moves the op's compulsory bytes.
    """
    by_name = {measure.name: measure for measure in measures}
    family = _Family(by_name, launch, on, _flops(by_name, launch, on))
    return [
        *_dram(family),
        *_cache(family),
        *_shares(family, *_L1),
        *_arithmetic(family),
        *_formula(family),
    ]


def _flops(by_name: dict[str, Measure], launch: Launch, on: Hardware) -> _Flops | None:
    if launch.flops:
        return _Flops(launch.flops / launch.seconds, "the op's formula")
    if "tensor" in by_name and by_name["tensor"].value >= _IDLE:
        return None
    peaks = {name: _peak(on, unit, launch.unit or "") for _, name, unit in _ARITHMETIC[1:] if name in by_name}
    rate = sum(by_name[name].value / 100 * peak[0] for name, peak in peaks.items() if peak)
    return _Flops(rate, "instructions of pipes × their peaks, at most") if rate else None


def _peak(on: Hardware, unit: str, own: str) -> tuple[float, str] | None:
    """Return the measured or published rate; for tensor cores, of its `own` unit or else a common one."""
    if unit != "matmul.":
        return on.arithmetic(unit)
    choices = (own, *_MATRIX) if own.startswith(unit) else _MATRIX
    return next((rate for choice in choices if (rate := on.arithmetic(choice))), None)


def _shares(family: _Family, title: str, name: str, peak: str, basis: str) -> Iterator[Level]:
    """Yield a level of memory for which a counter gives the share of a known peak."""
    if name in family.measures:
        used, error = family.used(name)
        ceiling = family.on.figures.get(peak)
        rate = used * ceiling if ceiling else None
        why = "" if rate else "the device's peak is not known"
        yield Level(title, "memory", used, error, rate, ceiling, "B/s", family.over(rate), basis, why)


def _dram(family: _Family) -> Iterator[Level]:
    yield from _shares(family, *_DRAM)
    least, memory = family.launch.bytes, family.on.memory()
    if "dram" not in family.measures and least and memory:
        rate = least / family.launch.seconds
        basis = f"bytes that the op must move, of the {memory[1]} bandwidth"
        yield Level("DRAM", "memory", rate / memory[0], 0.0, rate, memory[0], "B/s", family.over(rate), basis)


def _cache(family: _Family) -> Iterator[Level]:
    """Yield L2 with its measured ceiling if its traffic in bytes is known, else the share of its peak."""
    ceiling = family.on.limits.cache if family.on.limits else None
    traffic = family.measures.get("l2_rate")
    if traffic is not None and (ceiling or "l2" in family.measures):
        used = (traffic.value / ceiling, traffic.error / ceiling) if ceiling else family.used("l2")
        basis = "sectors that multiprocessors ask for × 32 B" if traffic.source == "ncu" else _WORTH
        basis += ", of the measured bandwidth" if ceiling else ""
        rate = traffic.value
        yield Level("L2", "memory", *used, rate, ceiling, "B/s", family.over(rate), basis)
    elif "l2" in family.measures:
        used = family.used("l2")
        yield Level("L2", "memory", *used, None, ceiling, "B/s", None, "share of its counters' peak", NO_PEAK)


def _arithmetic(family: _Family) -> Iterator[Level]:
    """Yield the use of each pipe as a share; also as FLOP/s, if `_flops_of_use` accepts them."""
    for title, name, unit in _ARITHMETIC:
        if name in family.measures and (family.measures[name].value > 0 or name == "tensor"):
            used, error = family.used(name)
            peak = _peak(family.on, unit, family.launch.unit or "")
            rate, why = (
                _flops_of_use(family, name, used * peak[0]) if peak else (None, "the peak is not known")
            )
            ceiling = peak[0] if peak else None
            yield Level(
                title, "arithmetic", used, error, rate, ceiling, "FLOP/s", None, "use of the pipe", why
            )


def _flops_of_use(family: _Family, name: str, rate: float) -> tuple[float | None, str]:
    """Return the FLOP/s of a pipe's use, or the reason why they are unknown."""
    if not rate:
        return rate, ""
    if family.launch.flops and family.flops:
        near = max(rate / family.flops.rate, family.flops.rate / rate) <= _LARGEST_RATIO
        return (rate, "") if near else (None, _NOT_ITS_WORK)
    return (None, _NO_FLOPS) if name == "tensor" else (rate, "")


def _formula(family: _Family) -> Iterator[Level]:
    unit = family.launch.unit or ""
    own = family.on.arithmetic(unit)
    if own and family.flops and family.launch.flops:
        rate, basis = family.flops.rate, f"{family.flops.basis}, of the {own[1]} rate"
        yield Level(unit, "arithmetic", rate / own[0], 0.0, rate, own[0], "FLOP/s", None, basis)


SHARE = "lts__t_sector_throughput_srcunit_tex"  # share of the most sectors that multiprocessors can request
LEAST_SHARE, MOST_ERROR = 5.0, 0.02  # per cent; relative to the share
AGREEING, TOLERANCE = 3, 0.05  # families; relative difference of their values
NO_PEAK = f"its counters' peak is not published, and fewer than {AGREEING} kernels of known bytes agree on it"


def cache_peak(families: Iterable[tuple[float, float, float]]) -> float | None:
    """Return the bandwidth of L2 in B/s to which counters' shares refer; None if too few families agree.

    This peak is not published, so it is derived from the recorded kernels: (share in per cent, its error,
    compulsory B/s) of each family. All compulsory bytes pass L2, so their rate cannot exceed the share times
    the peak. Copies and elementwise kernels move little else, so the peak is the largest value on which
    several families agree.
    """
    precise = (
        (share, rate)
        for share, error, rate in families
        if share >= LEAST_SHARE and error <= MOST_ERROR * share
    )
    peaks = sorted((100 * rate / share for share, rate in precise), reverse=True)
    for place, largest in enumerate(peaks):
        group = [peak for peak in peaks[place:] if peak >= largest * (1 - TOLERANCE)]
        if len(group) >= AGREEING:
            return median(group)
    return None
