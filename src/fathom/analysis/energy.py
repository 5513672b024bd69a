"""Energy of a step: what a counter rose by over whole clean stretches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained, DeviceEnergy, Energy
from fathom.analysis.steps import Stretch

LEAST_S = 1.0  # counters advance ten to fifty times a second: less than this would show their grain
HOST = -1


@dataclass
class Metered:
    """One rank: its telemetry, its clean steps, and the devices that worked for it."""

    rank: int
    telemetry: pl.DataFrame
    stretches: list[Stretch]
    devices: list[int]


@dataclass
class Spent:
    """Joules and seconds of the clean steps on one device."""

    joules: float
    seconds: float
    steps: int

    @property
    def per_step_j(self) -> float:
        """Joules a step."""
        return self.joules / self.steps

    @property
    def mean_power_w(self) -> float:
        """Watts over all of it."""
        return self.joules / self.seconds


def energy(ranks: list[Metered]) -> tuple[Energy | None, list[Abstained]]:
    """Joules a step, summed over the devices of all ranks, beside those of the host; or why not."""
    seconds = max((_seconds(rank.stretches) for rank in ranks), default=0.0)
    if seconds < LEAST_S:
        why = f"the clean steps took {seconds:.2f} s together, and the counters need {LEAST_S:g} s"
        return None, [Abstained("energy", why)]
    spent = {
        (r.rank, device): _spent(r.telemetry, device, r.stretches) for r in ranks for device in r.devices
    }
    whys = [
        Abstained(f"energy of cuda:{device} (rank {rank})", why)
        for (rank, device), why in spent.items()
        if isinstance(why, str)
    ]
    result = Energy()
    known = {key: value for key, value in spent.items() if isinstance(value, Spent)}
    if known and not whys:  # a sum that lacks a device would be taken for the whole
        parts = [DeviceEnergy(*key, one.per_step_j, one.mean_power_w) for key, one in known.items()]
        result.per_step_j = sum(one.per_step_j for one in parts)
        result.mean_power_w = sum(one.mean_power_w for one in parts)
        result.devices = parts if len(parts) > 1 else []
    host = _spent(ranks[0].telemetry, HOST, ranks[0].stretches)
    if isinstance(host, str):
        whys.append(Abstained("energy of the host", host))
    else:
        result.host_per_step_j, result.host_mean_power_w = host.per_step_j, host.mean_power_w
    if result == Energy():
        return None, whys
    result.source = "energy counters over the clean steps"
    return result, whys


def _seconds(found: list[Stretch]) -> float:
    return sum(stretch.end_ns - stretch.start_ns for stretch in found) / 1e9


def _spent(telemetry: pl.DataFrame, device: int, found: list[Stretch]) -> Spent | str:
    """What the counter rose by in the stretches that its samples cover, or why that is not known."""
    known = telemetry.filter(pl.col("device") == device).drop_nulls("energy_j").sort("time_ns")
    if known.height < 2:
        return "it has no energy counter that can be read"
    times, joules = known["time_ns"].to_numpy(), known["energy_j"].to_numpy()
    if (np.diff(joules) < 0).any():
        return "its energy counter fell while the program ran"
    inside = [s for s in found if times[0] <= s.start_ns and s.end_ns <= times[-1]]
    seconds = _seconds(inside)
    if seconds < LEAST_S:
        return f"only {seconds:.2f} s of clean steps lie between its samples"
    rose = sum(_at(times, joules, s.end_ns) - _at(times, joules, s.start_ns) for s in inside)
    return Spent(rose, seconds, sum(s.count for s in inside))


def _at(times: Array, joules: Array, when: int) -> float:
    return float(np.interp(float(when - times[0]), (times - times[0]).astype(float), joules))
