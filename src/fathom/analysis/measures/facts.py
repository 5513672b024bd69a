"""Facts about a device and a kernel family that formulas may use."""

from __future__ import annotations

from typing import Any, NamedTuple

from fathom.analysis.measures.occupancy import Chip, Occupancy, chip, occupancy
from fathom.machine import Limits, architecture, datasheet, limits_of, peaks_of

_CORES_PER_WARP = 32


class Hardware(NamedTuple):
    """Figures of one device.

    `figures` are the peaks to which counters refer: multiprocessors, dram_peak, link_peak, pcie_peak (B/s)
    and so on. `limits` are measured ceilings. `peaks` are the dense matrix and vector rates of the datasheet.
    """

    chip: Chip | None
    figures: dict[str, float]
    limits: Limits | None
    peaks: dict[str, float]

    def arithmetic(self, unit: str | None) -> tuple[float, str] | None:
        """Return the FLOP/s of a unit like `matmul.bf16`, and "measured" or "datasheet"; None if unknown."""
        measured = self.limits.arithmetic.get(unit or "") if self.limits else None
        if measured:
            return measured, "measured"
        published = self.peaks.get(unit or "")
        return (published, "datasheet") if published else None

    def memory(self) -> tuple[float, str] | None:
        """Return the B/s of DRAM, and "measured" or "datasheet"; None if unknown."""
        if self.limits and self.limits.memory:
            return self.limits.memory, "measured"
        peak = self.figures.get("dram_peak")
        return (peak, "datasheet") if peak else None


def hardware(machine: dict[str, Any], index: int | None) -> Hardware:
    """Return device `index` of a machine file; missing figures come from the chip's datasheet."""
    gpus = machine.get("gpus") or []
    gpu = next((known for known in gpus if known.get("index") == index), gpus[0] if gpus else {})
    sheet = datasheet.find(gpu)
    published = {name: figure.value for name, figure in sheet.figures.items()} if sheet else {}
    capability = gpu.get("compute_capability")
    on = chip(capability)
    known = {
        "multiprocessors": gpu.get("multiprocessors") or published.get("sms"),
        "dram_peak": _dram(gpu) or published.get("hbm"),
        "link_peak": published.get("link"),
        "pcie_peak": published.get("pcie"),
        "l1_peak": published.get("shared.read"),
        "sm_clock_most": (gpu.get("sm_clock_max_mhz") or 0) * 1e6,
        **_rates(capability, on),
    }
    figures = {name: float(value) for name, value in known.items() if value}
    rates = {name: value for name, value in published.items() if name.startswith("vector.f")}
    return Hardware(on, figures, limits_of(machine, index), peaks_of(machine, index) | rates)


def _dram(gpu: dict[str, Any]) -> float | None:
    """Return the B/s of DRAM: both edges of the memory's clock over the full bus width."""
    clock, bits = gpu.get("memory_clock_max_mhz"), gpu.get("memory_bus_bits")
    return 2 * clock * 1e6 * bits / 8 if clock and bits else None


def _rates(capability: str | None, on: Chip | None) -> dict[str, float | None]:
    """Return the limits of issue and of pipes, in warp instructions per clock and multiprocessor."""
    family = architecture(capability)
    if on is None or family is None:
        return {}
    special = family.special_per_sm
    return {
        "schedulers": on.schedulers,
        "warps_most": on.warps,
        "fma_per_clock": family.cores_per_sm / _CORES_PER_WARP,
        "alu_per_clock": on.alu / _CORES_PER_WARP,
        "xu_per_clock": special / _CORES_PER_WARP if special else None,
    }


def fits(on: Hardware, launch: dict[str, Any]) -> Occupancy | None:
    """Return the theoretical occupancy of a launch (threads, registers, shared_bytes); None if unknown."""
    threads, registers, shared = (launch.get(key) for key in ("threads", "registers", "shared_bytes"))
    if on.chip is None or threads is None or registers is None or shared is None:
        return None
    return occupancy(on.chip, round(threads), round(registers), round(shared))


def facts_of(on: Hardware, launch: dict[str, Any], work: dict[str, Any], seconds: float) -> dict[str, float]:
    """Return facts for the formulas of one family: about its device, its launches, and one launch's work."""
    fit = fits(on, launch)
    arithmetic = on.arithmetic(work.get("unit"))
    known = {
        "seconds": seconds,
        "compulsory_bytes": work.get("bytes_a_launch"),
        "algorithmic_flops": work.get("flops_a_launch"),
        "arithmetic_peak": arithmetic[0] if arithmetic else None,
        "warps_fit": fit.warps if fit else None,
        "blocks_fit": fit.blocks if fit else None,
    }
    return on.figures | {name: float(value) for name, value in known.items() if value}
