"""Facts that formulas may use: of a device, of a kernel family, and the occupancy of its launches."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import msgspec

from fathom.analysis.measures.results import Occupancy
from fathom.data import load
from fathom.machine import Limits, architecture, datasheet, limits_of, peaks_of
from fathom.machine.model import Gpu, Machine

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


def hardware(machine: Machine, index: int | None) -> Hardware:
    """Return device `index` of a machine file; missing figures come from the chip's datasheet."""
    gpus = machine.get("gpus") or []
    first: Gpu = gpus[0] if gpus else {}
    gpu = next((known for known in gpus if known.get("index") == index), first)
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


def launch_size(sides: str | None) -> int | None:
    """Return the blocks of a grid, or the threads of a block: 512 for `64x8x1`; None if unknown."""
    counts = (sides or "").split("x")
    return math.prod(map(int, counts)) if all(count.isdecimal() for count in counts) else None


def _dram(gpu: Gpu) -> float | None:
    """Return the B/s of DRAM: two transfers per cycle of the memory clock over the full bus width."""
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


class Launch(NamedTuple):
    """A launch of mean length: its resources, and its work on a `unit` of arithmetic; None if unknown."""

    seconds: float
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    flops: float | None = None
    bytes: float | None = None
    unit: str | None = None


def fits(on: Hardware, launch: Launch) -> Occupancy | None:
    """Return the theoretical occupancy of a launch; None if its resources are unknown."""
    if on.chip is None or launch.threads is None or launch.registers is None or launch.shared_bytes is None:
        return None
    return occupancy(on.chip, launch.threads, launch.registers, launch.shared_bytes)


def facts_of(on: Hardware, launch: Launch) -> dict[str, float]:
    """Return facts for the formulas of one family: about its device, its launches, and one launch's work."""
    fit = fits(on, launch)
    arithmetic = on.arithmetic(launch.unit)
    known = {
        "seconds": launch.seconds,
        "compulsory_bytes": launch.bytes,
        "algorithmic_flops": launch.flops,
        "arithmetic_peak": arithmetic[0] if arithmetic else None,
        "warps_fit": fit.warps if fit else None,
        "blocks_fit": fit.blocks if fit else None,
    }
    return on.figures | {name: float(value) for name, value in known.items() if value}


class Chip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resources of a multiprocessor and their allocation units; see `chips.yaml`."""

    warp: int
    schedulers: int
    registers: int
    register_unit: int
    registers_per_thread: int
    threads_per_block: int
    shared_unit: int
    shared_reserved: int
    threads: int
    blocks: int
    shared: int
    shared_per_block: int
    alu: int
    l2_bytes_per_clock: int | None = None

    @property
    def warps(self) -> int:
        """Most warps that a multiprocessor can hold."""
        return self.threads // self.warp


@cache
def _chips() -> dict[str, Chip]:
    chips = load(__package__, "chips")
    del chips["common"]
    return msgspec.convert(chips, dict[str, Chip])


def chip(capability: str | None) -> Chip | None:
    """Return the chip of a compute capability such as `9.0`; None if it is not listed."""
    return _chips().get(capability or "")


def occupancy(
    on: Chip, threads: int, registers: int, shared: int, *, cluster: int = 1, sms_per_gpc: int | None = None
) -> Occupancy | None:
    """Return the occupancy of blocks of `threads` with `registers` per thread and `shared` bytes.

    `shared` is static plus dynamic memory. `cluster` blocks are placed within one of the chip's clusters of
    `sms_per_gpc` multiprocessors. None if the block cannot run. The calculation is that of NVIDIA's
    `cuda_occupancy.h`, with the multiprocessor's largest shared memory.
    """
    if threads < 1 or threads > on.threads_per_block or registers > on.registers_per_thread:
        return None
    warps = -(-threads // on.warp)
    limits = {
        "warps": on.warps // warps,
        "blocks": on.blocks,
        "registers": _by_registers(on, warps, registers),
        "shared memory": _by_shared(on, shared),
    }
    blocks = min(limits.values())
    if cluster > 1 and sms_per_gpc:
        limits["cluster"] = blocks * sms_per_gpc // cluster * cluster // sms_per_gpc
        blocks = min(limits.values())
    if blocks < 1:
        return None
    limiters = [name for name, limit in limits.items() if limit == blocks]
    held_warps = blocks * warps
    more = _next(on, warps, registers, shared, blocks)
    return Occupancy(blocks, held_warps, held_warps / on.warps, limiters, more)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _by_registers(on: Chip, warps: int, registers: int) -> int:
    """Return the blocks that fit by registers, which are allocated per warp from a scheduler's part."""
    if not registers:
        return on.blocks
    each = _round_up(registers * on.warp, on.register_unit)
    if each * _round_up(warps, on.schedulers) > on.registers:
        return 0
    return on.registers // on.schedulers // each * on.schedulers // warps


def _by_shared(on: Chip, shared: int) -> int:
    each = _round_up(shared + on.shared_reserved, on.shared_unit)
    if each > on.shared_per_block + on.shared_reserved:
        return 0
    return on.shared // each if each else on.blocks


def _next(on: Chip, warps: int, registers: int, shared: int, blocks: int) -> dict[str, int]:
    """Return the largest use of each limiter alone with which one more block would fit."""
    largest = {}
    fewer = (r for r in range(registers - 1, 0, -1) if _by_registers(on, warps, r) > blocks)
    if (enough := next(fewer, None)) is not None:
        largest["registers"] = enough
    room = on.shared // (blocks + 1) // on.shared_unit * on.shared_unit - on.shared_reserved
    if 0 <= room < shared:
        largest["shared memory"] = room
    return largest
