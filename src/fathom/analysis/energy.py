"""Energy of a step and its cost: from counters over clean steps, or from mean power over nearby ones."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import replace

from fathom.analysis.intervals import Array
from fathom.analysis.resources import DeviceEnergy, Energy
from fathom.analysis.results import Abstained, Cost, Examination, Finding, Money
from fathom.analysis.steps import Stretch, stretches
from fathom.machine import Price
from fathom.units import MS_PER_S, NS_PER_S

LEAST_S = 1.0  # energy counters advance 10 to 50 times per second: shorter spans are too coarse
MOSTLY = 0.5  # least share of the time from the first step to the last in which steps run
HOST = -1
OWN = "energy counters over the clean steps"
LATER = "estimated as the clean step time multiplied by the mean power of unprofiled steps after profiling"
ALL_STEPS = (
    "estimated as the clean step time multiplied by the mean power over all steps, including profiled ones"
)
SAMPLED = "sampled power, as there is no energy counter: "
HOUR_MS, DAY_H, MILLION = 3.6e6, 24.0, 1e6


class Metered(msgspec.Struct):
    """The telemetry, clean steps and devices of one rank.

    If there are too few clean steps, `steps` (of all phases), their `kind` and the mean clean step
    (`step_ms`) are used instead.
    """

    rank: int
    telemetry: pl.DataFrame
    stretches: list[Stretch]
    devices: list[int]
    steps: pl.DataFrame = msgspec.field(default_factory=pl.DataFrame)
    kind: str = ""
    step_ms: float | None = None


class Meter(msgspec.Struct):
    """Cumulative energy of one device in J at `times` in ns; `sampled` if it is integrated from power."""

    times: Array
    joules: Array
    sampled: bool = False

    def rise(self, start_ns: int, end_ns: int) -> float:
        """Return the energy between two times in ns, in J."""
        base, since = self.times[0], (self.times - self.times[0]).astype(float)
        first, last = np.interp([float(start_ns - base), float(end_ns - base)], since, self.joules)
        return float(last - first)


class Spent(msgspec.Struct):
    """Energy per step in J with its interval, and mean power in W."""

    per_step_j: float
    mean_power_w: float
    low_j: float
    high_j: float
    source: str


def energy_of(ranks: list[Metered]) -> tuple[Energy | None, list[Abstained]]:
    """Return the energy per step of all devices and of the host (None if unknown), and reasons for gaps."""
    spent = {(rank.rank, device): _spent(rank, device) for rank in ranks for device in rank.devices}
    whys = [
        Abstained(f"energy of cuda:{device} (rank {rank})", why)
        for (rank, device), why in spent.items()
        if isinstance(why, str)
    ]
    known = {key: value for key, value in spent.items() if isinstance(value, Spent)}
    result = Energy()
    if known and not whys:  # a sum without one device would be misread as the total
        _add(result, known)
    host = _spent(ranks[0], HOST)
    if isinstance(host, str):
        whys.append(Abstained("energy of the host", host))
    else:
        result.host_per_step_j, result.host_mean_power_w = host.per_step_j, host.mean_power_w
        result.source = result.source or host.source
    return (None if result == Energy() else result), _one_reason(whys)


def _add(to: Energy, known: dict[tuple[int, int], Spent]) -> None:
    parts = [DeviceEnergy(*key, spent.per_step_j, spent.mean_power_w) for key, spent in known.items()]
    to.per_step_j = sum(part.per_step_j for part in parts)
    to.mean_power_w = sum(part.mean_power_w for part in parts)
    to.devices = parts if len(parts) > 1 else []
    to.source = "; ".join(dict.fromkeys(spent.source for spent in known.values()))
    low, high = (sum(getattr(spent, end) for spent in known.values()) for end in ("low_j", "high_j"))
    if low < high:
        to.per_step_low_j, to.per_step_high_j = low, high


def _one_reason(whys: list[Abstained]) -> list[Abstained]:
    """Merge all entries into one if they have the same reason."""
    if len(whys) > 1 and len({entry.why for entry in whys}) == 1:
        return [Abstained("energy", whys[0].why)]
    return whys


def _spent(rank: Metered, device: int) -> Spent | str:
    """Return the energy of clean, later unprofiled or all steps, in this order; or why it is unknown."""
    meter = _meter(rank.telemetry, device)
    if isinstance(meter, str):
        return meter
    for method in (_of_clean, _of_later, _of_all):
        if spent := method(rank, meter):
            spent.source = (SAMPLED if meter.sampled else "") + spent.source
            return spent
    seconds = _seconds(rank.stretches)
    return f"the clean steps took {seconds:.2f} s in total, and the sensors need {LEAST_S:g} s"


def _meter(telemetry: pl.DataFrame, device: int) -> Meter | str:
    """Return the device's energy counter, or else its integrated power; or the reason why it has neither."""
    rows = telemetry.filter(pl.col("device") == device).sort("time_ns")
    counted = rows.drop_nulls("energy_j")
    if counted.height >= 2:
        joules = counted["energy_j"].to_numpy()
        if (np.diff(joules) < 0).any():
            return "its energy counter fell while the program ran"
        return Meter(counted["time_ns"].to_numpy(), joules)
    powered = rows.drop_nulls("power_w") if "power_w" in rows.columns else rows.clear()
    if powered.height < 2:
        return "it has no energy counter that can be read"
    times, watts = powered["time_ns"].to_numpy(), powered["power_w"].to_numpy()
    each = np.diff(times) / NS_PER_S * (watts[:-1] + watts[1:]) / 2
    return Meter(times, np.concatenate([[0.0], np.cumsum(each)]), sampled=True)


def _of_clean(rank: Metered, meter: Meter) -> Spent | None:
    metered = _metered(rank.stretches, meter)
    if metered is None:
        return None
    joules, seconds, steps = metered
    step_s = _step_s(rank.stretches) or seconds / steps
    each = joules / seconds * step_s
    return Spent(each, joules / seconds, each, each, OWN)


def _of_later(rank: Metered, meter: Meter) -> Spent | None:
    """Return the energy of steps after the profiler ran; None if the meter covers too few.

    These steps are a little longer than clean ones. The power in the additional time is at most the mean
    power, which bounds the clean step's energy.
    """
    if rank.steps.is_empty() or not rank.step_ms:
        return None
    metered = _metered(stretches(rank.steps, rank.kind), meter)
    if metered is None:
        return None
    joules, seconds, steps = metered
    low, high = sorted((joules / seconds * rank.step_ms / MS_PER_S, joules / steps))
    return Spent((low + high) / 2, joules / seconds, low, high, LATER)


def _of_all(rank: Metered, meter: Meter) -> Spent | None:
    """Return the energy per step from mean power over all steps; None if they fill too little of the time."""
    if rank.steps.is_empty() or not rank.step_ms:
        return None
    rows = rank.steps.filter(pl.col("parent").is_null()).drop_nulls("end_ns")
    starts, ends = rows["mark_ns"].to_numpy(), rows["end_ns"].to_numpy()
    if not len(starts):
        return None
    start, end = max(int(starts.min()), int(meter.times[0])), min(int(ends.max()), int(meter.times[-1]))
    ran = int((np.minimum(ends, end) - np.maximum(starts, start)).clip(0).sum())
    if end - start < LEAST_S * NS_PER_S or ran < MOSTLY * (end - start):
        return None
    power = meter.rise(start, end) / (end - start) * NS_PER_S
    most = max(power, _most(meter, start, end))
    low, high = (watts * rank.step_ms / MS_PER_S for watts in (power, most))
    return Spent((low + high) / 2, power, low, high, ALL_STEPS)


def _most(meter: Meter, start: int, end: int) -> float:
    """Return the highest mean power over one second, in W."""
    begins = np.arange(start, end - int(LEAST_S * NS_PER_S) + 1, int(LEAST_S * NS_PER_S) // 2)
    return max(meter.rise(int(at), int(at + LEAST_S * NS_PER_S)) / LEAST_S for at in begins)


def _metered(runs: list[Stretch], meter: Meter) -> tuple[float, float, int] | None:
    """Return joules, seconds and steps of the stretches that the meter covers; None for less than LEAST_S."""
    inside = [s for s in runs if meter.times[0] <= s.start_ns and s.end_ns <= meter.times[-1]]
    seconds = _seconds(inside)
    if seconds < LEAST_S:
        return None
    joules = sum(meter.rise(s.start_ns, s.end_ns) for s in inside)
    return joules, seconds, sum(s.count for s in inside)


def _step_s(runs: list[Stretch]) -> float | None:
    """Return the mean step by device boundaries; None if they time no steps.

    Host marks come early where the host runs ahead of its device, so a stretch's own time is too short.
    """
    timed = [(ns * count, count) for run in runs if run.measured for ns, count in run.durations()]
    steps = sum(count for _, count in timed)
    return sum(ns for ns, _ in timed) / steps / NS_PER_S if steps else None


def _seconds(runs: list[Stretch]) -> float:
    return sum(stretch.end_ns - stretch.start_ns for stretch in runs) / NS_PER_S


def priced(examination: Examination, price: Price) -> Examination:
    """Return the examination with its cost, and with the money that each fix saves per GPU and day."""
    devices = [device for device in examination.devices if device.device != "cpu"]
    step, number = examination.step, max(len(devices), 1)
    clean = step.clean_mean_ms if step.clean_mean_ms is not None else step.clean_ms
    ms = clean if clean is not None else step.timeline_ms
    per_hour = price.amount * number
    cost = Cost(
        price_per_hour=price.amount,
        currency=price.currency,
        devices=number,
        per_step=None if ms is None else per_hour * ms / HOUR_MS,
        per_million_tokens=_per_million(per_hour, step.tokens_per_s),
        per_million_samples=_per_million(per_hour, step.samples_per_s),
    )
    findings = [replace(finding, saves_per_day=_per_day(finding, price)) for finding in examination.findings]
    serving = examination.serving
    if serving is not None:
        serving = replace(serving, per_million=_per_million(per_hour, serving.tokens_per_s))
    return replace(examination, cost=cost, findings=findings, serving=serving)


def _per_million(per_hour: float, per_s: float | None) -> float | None:
    return per_hour / (per_s * 3600.0) * MILLION if per_s else None


def _per_day(finding: Finding, price: Price) -> Money | None:
    return None if finding.share is None else Money(finding.share * price.amount * DAY_H, price.currency)
