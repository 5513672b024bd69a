"""Signals of the device: properties, sensors, memory, and kernels slowed down by another process."""

from __future__ import annotations

import polars as pl

from fathom.analysis.entries import Entry
from fathom.analysis.results import Memory
from fathom.diagnosis.signals.kernels import timed
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Reserved, Sensors, Stretched
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

AMPERE = 8  # the first compute capability with TF32
# Libraries name kernels after the chip that they were written for. Each chip also runs those of earlier ones,
# so that many kernels of an earlier chip and none of a later one show an earlier chip.
SINCE_AMPERE = r"(?i)ampere|hopper|blackwell|tf32|nvjet|sm(?:8|9|1[0-2])[0-9]_"
BEFORE_AMPERE = r"(?i)(?:volta|turing|pascal|maxwell)_"
MANY = 10  # kernels
ENOUGH = 6  # samples of the allocator
BUSY = 50.0  # percent: below it, clocks and power say nothing about the program
REASONS = {  # bits of NVML's clock event reasons: nvml.h, nvmlClocksEventReason*
    "power limit": 0x4,
    "hardware slowdown": 0x8,
    "thermal": 0x20 | 0x40,
    "power brake": 0x80,
}
NO_SENSORS = "no sensors were read while the device was busy"
SLICE_NS = 500_000  # time slices are one or two milliseconds; kernels scatter by less than this
TIMES = 1.3  # times its usual duration
LAUNCHES = 3  # launches, to know the usual duration


@signal("device.tf32")
def tf32(recorded: Recorded) -> bool:
    """Return whether tensor cores support TF32, by the compute capability or else by kernel names."""
    gpus = recorded.machine.get("gpus") or []
    capability = next((g.get("compute_capability") for g in gpus if g.get("index") == recorded.index), None)
    major = str(capability or "").partition(".")[0]
    if major.isdigit():
        return int(major) >= AMPERE
    named = recorded.kernels["name"].drop_nulls()
    if named.str.contains(SINCE_AMPERE).any():
        return True
    if int(named.str.contains(BEFORE_AMPERE).sum()) >= MANY:
        return False
    raise UnknownSignalError("the device's compute capability was not recorded")


@signal("device.used_bytes", "B")
def used_bytes(recorded: Recorded) -> int:
    """Return the peak of the allocator's reserved memory, or else the peak memory use of the device."""
    memory = recorded.memory or Memory()
    peak = memory.peak_reserved_bytes or memory.peak_device_bytes
    if not peak:
        raise UnknownSignalError("the peak memory use was not recorded")
    return int(peak)


@signal("device.reserved", "B")
def reserved(recorded: Recorded) -> Reserved:
    """Return reserved memory from the allocator's counts per phase; its peaks never fall."""
    table = recorded.rows("memory")
    rows = table.filter(device=recorded.index, event="peak").sort("time_ns").collect().drop_nulls("reserved")
    if rows.height < ENOUGH:
        raise UnknownSignalError("too few readings of the allocator were recorded")
    unused = (rows["reserved"] - rows["allocated"]).to_list()
    return Reserved(float(rows["allocated"][-1]), float(unused[-1]), float(unused[rows.height // 3]))


@signal("device.allocated_bytes", "B")
def allocated_bytes(recorded: Recorded) -> int:
    """Return the peak memory of tensors, according to torch's allocator."""
    peak = (recorded.memory or Memory()).peak_allocated_bytes
    if not peak:
        raise UnknownSignalError("the peak of allocated memory was not recorded")
    return int(peak)


@signal("device.link_share")
def link_share(recorded: Recorded) -> float:
    """Return the PCIe link's share of its full rate; each generation doubles the rate."""
    gpu = recorded.gpu
    width, widest = gpu.get("pcie_width"), gpu.get("pcie_width_max")
    generation, latest = gpu.get("pcie_generation"), gpu.get("pcie_generation_max")
    if not (width and widest and generation and latest):
        raise UnknownSignalError("the width of the device's PCIe link was not recorded")
    return min(width / widest * 2.0 ** (generation - latest), 1.0)


@signal("device.sensors")
def sensors(recorded: Recorded) -> Sensors:
    """Return the sensor readings of the seconds in which the device was busy."""
    index = recorded.index
    rows = recorded.rows("telemetry").filter(device=index).collect()
    rows = rows.filter(pl.col("busy_percent") >= BUSY)
    if rows.is_empty():
        raise UnknownSignalError(NO_SENSORS)
    known = rows["throttle"].drop_nulls()
    shares = {
        name: float(((known & bits) > 0).sum()) / len(known) if len(known) else 0.0
        for name, bits in REASONS.items()
    }
    clock, temperature, power = (_median(rows[name]) for name in ("sm_clock_mhz", "temperature_c", "power_w"))
    return Sensors(clock, temperature, power, shares, rows.height)


def _median(values: pl.Series) -> float | None:
    median = values.median()
    return None if median is None else float(median)  # type: ignore[arg-type]


@signal("device.stretched", "ms per step")
def stretched(recorded: Recorded) -> Stretched:
    """Return kernels that are longer than their family in the same step and the same launch in other steps.

    Sizes may differ within one step or between steps, which does not mean another process. All recorded steps
    are compared, including those that the ledger leaves out.
    """
    rows = timed(recorded).filter(pl.col("entry") == Entry.COMPUTE).sort("start_ns")
    rows = rows.with_columns(window=recorded.window(rows, used=False)).filter(pl.col("window") >= 0, _alone())
    steps = rows["window"].n_unique() or 1
    rows = rows.with_columns(place=pl.int_range(pl.len()).over("window", "label"))
    beside = [_usual("window", "label"), _usual("place", "label")]
    rows = rows.with_columns(
        usual=pl.max_horizontal(*beside), known=pl.all_horizontal(*map(pl.Expr.is_not_null, beside))
    )
    more = pl.col("ns") - pl.col("usual")
    some = rows.filter("known", more >= SLICE_NS, pl.col("ns") >= TIMES * pl.col("usual"))
    return Stretched(
        float(some.select(more.sum()).item() or 0) / steps / NS_PER_MS,
        some.height / steps,
        some["label"].n_unique(),
    )


def _usual(*among: str) -> pl.Expr:
    return pl.when(pl.len().over(*among) >= LAUNCHES).then(pl.col("ns").quantile(0.25, "lower").over(*among))


def _alone() -> pl.Expr:
    """Return kernels that did not run concurrently with others."""
    before, after = pl.col("end_ns").cum_max().shift(1), pl.col("start_ns").shift(-1)
    return (pl.col("start_ns") >= before).fill_null(True) & (after >= pl.col("end_ns")).fill_null(True)
