"""The hierarchical roofline: how far a family is below every level of memory and every kind of arithmetic.

After Yang, Kurth, Williams, "Hierarchical Roofline analysis for GPUs" (Concurrency and Computation 32, 2020),
with shares of peak that counters tell in place of counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fathom.analysis.measures.facts import Hardware
from fathom.analysis.measures.results import Level, Measure

COUNTED = "counters"
_ARITHMETIC = (
    ("tensor cores", "tensor", "matmul."),
    ("FP32 pipe", "fma", "vector.fp32"),
    ("FP64 pipe", "fp64", "vector.fp64"),
)
_MATRIX = ("matmul.bf16", "matmul.fp16", "matmul.tf32", "matmul.fp8", "matmul.int8", "matmul.fp64")
_MEMORY = (
    ("DRAM", "dram", "dram_peak", "share of the memory's peak × its bandwidth"),
    ("L2", "l2", "l2_peak", "share of L2's peak"),
    ("L1 and shared", "lsu", "l1_peak", "share of the data stage × 128 B a clock, at most"),
)


class _Flops(NamedTuple):
    rate: float
    basis: str


def levels(measures: list[Measure], work: dict[str, Any], seconds: float, on: Hardware) -> list[Level]:
    """Levels of memory, then kinds of arithmetic, of which anything is known.

    FLOPs are the op's where a formula tells them, else those that the pipes' use stands for; without counters
    DRAM has the bytes that the op must move at least.
    """
    by_name = {measure.name: measure for measure in measures}
    flops = _flops(by_name, work, seconds, on)
    found = list(_memory(by_name, work, seconds, on, flops))
    return found + list(_arithmetic(by_name, work, on, flops))


def _flops(by_name: dict[str, Measure], work: dict[str, Any], seconds: float, on: Hardware) -> _Flops | None:
    if work.get("flops_a_launch"):
        return _Flops(work["flops_a_launch"] / seconds, "the op's formula")
    rate = 0.0
    for _, name, unit in _ARITHMETIC:
        peak = _peak(on, unit, work)
        if name in by_name and peak:
            rate += by_name[name].value / 100 * peak[0]
    return _Flops(rate, "use of pipes × their peaks, at most") if rate else None


def _peak(on: Hardware, unit: str, work: dict[str, Any]) -> tuple[float, str] | None:
    """The published or measured rate; of tensor cores in the work's own type, else in the commonest."""
    if unit != "matmul.":
        return on.arithmetic(unit)
    own = str(work.get("unit") or "")
    choices = (own, *_MATRIX) if own.startswith(unit) else _MATRIX
    return next((found for choice in choices if (found := on.arithmetic(choice))), None)


def _memory(
    by_name: dict[str, Measure], work: dict[str, Any], seconds: float, on: Hardware, flops: _Flops | None
) -> Iterator[Level]:
    for title, name, peak, basis in _MEMORY:
        ceiling = on.figures.get(peak)
        if name in by_name:
            used, error = by_name[name].value / 100, by_name[name].error / 100
            rate = used * ceiling if ceiling else None
            yield Level(title, "memory", used, error, rate, ceiling, "B/s", _over(flops, rate), basis)
    memory = on.memory()
    if "dram" not in by_name and work.get("bytes_a_launch") and memory:
        rate = work["bytes_a_launch"] / seconds
        basis = f"bytes that the op must move, of the {memory[1]} bandwidth"
        yield Level(
            "DRAM", "memory", rate / memory[0], 0.0, rate, memory[0], "B/s", _over(flops, rate), basis
        )


def _over(flops: _Flops | None, rate: float | None) -> float | None:
    return flops.rate / rate if flops and rate else None


def _arithmetic(
    by_name: dict[str, Measure], work: dict[str, Any], on: Hardware, flops: _Flops | None
) -> Iterator[Level]:
    for title, name, unit in _ARITHMETIC:
        peak = _peak(on, unit, work)
        if name in by_name and (by_name[name].value > 0 or name == "tensor"):
            used, error = by_name[name].value / 100, by_name[name].error / 100
            rate = used * peak[0] if peak else None
            yield Level(
                title, "arithmetic", used, error, rate, peak[0] if peak else None, "FLOP/s", None, COUNTED
            )
    own = on.arithmetic(work.get("unit"))
    if own and flops and work.get("flops_a_launch"):
        basis = f"{flops.basis}, of the {own[1]} rate"
        yield Level(
            str(work["unit"]),
            "arithmetic",
            flops.rate / own[0],
            0.0,
            flops.rate,
            own[0],
            "FLOP/s",
            None,
            basis,
        )
