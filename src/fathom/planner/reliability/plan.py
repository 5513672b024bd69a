"""Plan a long run: failures, the best checkpoint interval, goodput, wall time and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import msgspec
import numpy as np

from fathom.data import load
from fathom.errors import BadInputError, nearest
from fathom.planner.quantity import ASSUMED, CALIBRATED, Quantity
from fathom.planner.reliability.checkpoints import (
    BYTES_PER_PARAMETER,
    Checkpoint,
    daly,
    expected_goodput,
    young,
)
from fathom.planner.reliability.simulation import ENTRIES, Job, simulate

HOURS_PER_DAY, SHORTEST_H = 24.0, 1e-9
_CLUSTERS = 0.35  # spread of the rate between clusters of one chip, in the logarithm
_OTHER_CHIP = 0.6
_TRIALS, _SHORT = 400, 100  # of the answer, and of the search for the interval
_SAMPLE = 300  # failures after which the shares of a longer job no longer change
_DOWN_SPREAD = 0.4  # of the times to detect and restart, in the logarithm
_LONGEST = 36_500.0  # days
_RAREST = 2.0  # times between failures, above which checkpoints are too rare to simulate
_FACTORS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)


@dataclass(frozen=True)
class Failures:
    """Failures per GPU hour by component, with the uncertainty of their sum."""

    by_component: Mapping[str, float]
    spread: float
    provenance: str
    source: str

    @property
    def rate(self) -> float:
        """Return the failures of all components per GPU hour."""
        return sum(self.by_component.values())

    def mtbf_h(self, gpus: int) -> Quantity:
        """Return the mean hours between failures of a job on `gpus`."""
        value = 1 / (self.rate * gpus)
        wide = math.exp(1.645 * self.spread)
        return Quantity(value, "h", self.provenance, self.source, value / wide, value * wide)


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published failure log: interruptions by component, over GPUs and days."""

    name: str
    chips: list[str]
    gpus: int
    days: float
    source: str
    counts: dict[str, int]


@cache
def logs() -> dict[str, Log]:
    """Return the published logs by name."""
    return {log.name: log for log in msgspec.convert(load(__package__, "logs"), list[Log])}


def failures_of(chip: str, log: str | None = None, mtbf_h: float | None = None, gpus: int = 1) -> Failures:
    """Return the failures of a chip: of its log, of another chip's, or by a stated time between them."""
    if mtbf_h is not None:
        if not SHORTEST_H <= mtbf_h < math.inf:
            raise BadInputError(f"A time between failures of {mtbf_h:g} h is impossible; give hours above 0.")
        return Failures({"stated": 1 / mtbf_h / gpus}, 0.1, ASSUMED, "given by the user")
    if log is not None and log not in logs():
        raise BadInputError(f"{log!r} is not a failure log; {nearest(log, logs())}.")
    mine = next((row for row in logs().values() if chip in row.chips), None)
    row = logs()[log] if log else mine or next(iter(logs().values()))
    known = chip in row.chips
    hours = row.gpus * row.days * HOURS_PER_DAY
    counts = {name: count / hours for name, count in row.counts.items()}
    spread = math.hypot(_CLUSTERS if known else _OTHER_CHIP, 1 / math.sqrt(sum(row.counts.values())))
    source = row.source if known else f"of another chip: {row.source}"
    return Failures(counts, spread, CALIBRATED if known else ASSUMED, source)


@dataclass(frozen=True)
class Run:
    """A long run: GPUs, days of productive time, parameters of the model, and how it survives failures."""

    gpus: int
    days: float
    parameters: float
    failures: Failures
    kind: str = "async"
    storage: float = 100e9
    interval_s: float | None = None
    detection_s: float = 120.0
    restart_s: float = 480.0
    spares: int | None = None
    repair_h: float = 24.0
    price: float | None = None
    size: float | None = None  # bytes of a checkpoint; by the parameters if None
    copies: int | None = None  # GPUs that copy their part to a host; all if None
    gather_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gpus", "days", "parameters", "storage", "interval_s", "size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInputError(f"{name.removesuffix('_s')} is {value}; it must be a number above 0.")
        if self.days > _LONGEST:
            raise BadInputError(f"days is {self.days:g}; give at most {_LONGEST:,.0f}, a hundred years.")
        for name in ("detection_s", "restart_s", "repair_h"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInputError(f"{name[:-2]} is {getattr(self, name)}; it must be a number.")

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint."""
        size = self.size or self.parameters * BYTES_PER_PARAMETER
        return Checkpoint(size, self.kind, self.storage, self.copies or self.gpus, self.gather_s)


class Point(msgspec.Struct, frozen=True):
    """Goodput at one checkpoint interval, simulated and by Daly's formula."""

    interval_s: float
    goodput: float
    formula: float


class ReliabilityPlan(msgspec.Struct, kw_only=True):
    """A plan of a long run. Times in seconds unless the name says more; intervals hold 9 cases of 10."""

    gpus: int
    mtbf_h: Quantity
    failures: Quantity
    components: dict[str, float]
    checkpoint_bytes: float
    checkpoint: str
    stop_s: float
    write_s: float
    young_s: float
    daly_s: float
    interval_s: float
    goodput: Quantity
    entries: dict[str, float]
    wall_days: Quantity
    dollars: Quantity | None
    curve: list[Point]
    notes: list[str]


def plan_reliability(run: Run) -> ReliabilityPlan:
    """Return the plan; simulation chooses the checkpoint interval if none is given."""
    mtbf = run.failures.mtbf_h(run.gpus)
    checkpoint = run.checkpoint
    mtbf_s = 3600 * mtbf.value
    best = daly(checkpoint.stop_s, mtbf_s)
    job = Job(
        86400 * run.days, mtbf_s, checkpoint,
        run.interval_s or max(best, checkpoint.write_s), run.detection_s,
        run.restart_s, run.spares, run.repair_h,
    )  # fmt: skip
    _possible(job)
    most = max(_RAREST * mtbf_s, job.interval_s)
    curve = [_point(job, factor) for factor in _FACTORS if job.interval_s * factor <= most]
    if run.interval_s is None:
        job = replace(job, interval_s=max(curve, key=lambda point: point.goodput).interval_s)
    sample = replace(job, work_s=min(job.work_s, _SAMPLE * mtbf_s))
    spent = simulate(sample, _TRIALS, (run.failures.spread, _DOWN_SPREAD)) * (job.work_s / sample.work_s)
    wall = spent.sum(1)
    days = _summary(wall / 86400, "days", run)
    return ReliabilityPlan(
        gpus=run.gpus,
        mtbf_h=mtbf,
        failures=_times(mtbf, days.value * HOURS_PER_DAY),
        components={
            name: rate * run.gpus * HOURS_PER_DAY for name, rate in run.failures.by_component.items()
        },
        checkpoint_bytes=checkpoint.size,
        checkpoint=run.kind,
        stop_s=checkpoint.stop_s,
        write_s=checkpoint.write_s,
        young_s=young(checkpoint.stop_s, mtbf_s),
        daly_s=best,
        interval_s=job.interval_s,
        goodput=_summary(spent[:, 0] / wall, "", run),
        entries={
            name: float(share) for name, share in zip(ENTRIES, spent.mean(0) / wall.mean(), strict=True)
        },
        wall_days=days,
        dollars=replace(days.times(HOURS_PER_DAY * run.gpus * run.price), unit="$") if run.price else None,
        curve=curve,
        notes=_notes(run, job),
    )


def _possible(job: Job) -> None:
    down = job.detection_s + job.restart_s + job.checkpoint.load_s
    is_slow = job.checkpoint.write_s > job.mtbf_s / 4 and job.checkpoint.kind == "async"
    can_restart = job.mtbf_s > job.detection_s + job.restart_s
    if can_restart and (is_slow or job.checkpoint.load_s > job.mtbf_s):
        raise BadInputError(
            f"The job fails every {job.mtbf_s / 60:.2g} minutes and writes its checkpoint in "
            f"{job.checkpoint.write_s / 60:.2g}, so it makes no progress; the slowest storage that works is "
            f"about {4 * job.checkpoint.size / job.mtbf_s / 1e9:.2g} GB/s in all."
        )
    if down + job.checkpoint.stop_s > 3 * job.mtbf_s:
        raise BadInputError(
            f"The job fails every {job.mtbf_s / 60:.2g} minutes and needs {down / 60:.2g} to "
            "restart, so it makes no "
            f"progress; the fastest restart that works is about {job.mtbf_s / 60:.2g} minutes, or "
            "use fewer GPUs."
        )
    if min(job.interval_s, job.work_s) > _RAREST * job.mtbf_s:
        near = max(daly(job.checkpoint.stop_s, job.mtbf_s), job.checkpoint.write_s)
        raise BadInputError(
            f"A checkpoint every {job.interval_s:,.0f} s is too rare for failures every {job.mtbf_s:,.0f} "
            f"s; the nearest that works well is every {near:,.0f} s."
        )
    repairing = 3600 * job.repair_h / job.mtbf_s
    if job.spares is not None and repairing > 2 * (job.spares + 1):
        raise BadInputError(
            f"About {repairing:.0f} hosts are under repair at any time, too many for {job.spares} spares; "
            f"use {math.ceil(repairing + 2 * math.sqrt(repairing))} spares."
        )


def _point(job: Job, factor: float) -> Point:
    at = replace(job, interval_s=job.interval_s * factor)
    spent = simulate(replace(at, work_s=min(job.work_s, _SAMPLE * job.mtbf_s)), _SHORT)
    down = job.detection_s + job.restart_s + job.checkpoint.load_s
    formula = expected_goodput(at.interval_s, job.checkpoint.stop_s, down, job.mtbf_s)
    return Point(at.interval_s, float(spent[:, 0].sum() / spent.sum()), formula)


def _summary(values: np.ndarray, unit: str, run: Run) -> Quantity:
    low, high = np.quantile(values, (0.05, 0.95))
    source = f"simulation with failures of {run.failures.source}"
    return Quantity(float(values.mean()), unit, run.failures.provenance, source, float(low), float(high))


def _times(mtbf: Quantity, hours: float) -> Quantity:
    low, high = mtbf.interval
    return replace(mtbf, value=hours / mtbf.value, unit="", low=hours / high, high=hours / low)


def _notes(run: Run, job: Job) -> list[str]:
    rules: list[tuple[bool, Callable[[], str]]] = [
        (
            job.checkpoint.write_s > job.interval_s,
            lambda: (
                f"Writing a checkpoint takes {job.checkpoint.write_s:.0f} s, longer than the interval; "
                f"storage of {run.storage * job.checkpoint.write_s / job.interval_s / 1e9:,.0f} "
                "GB/s would keep up."
            ),
        ),
        (
            run.gpus > 16384,
            lambda: "More GPUs than in any published log: the rate is extrapolated in proportion to them.",
        ),
        (run.kind == "memory", lambda: "Failures of both hosts that keep a copy are not counted."),
    ]
    return [words() for holds, words in rules if holds]


def explained(plan: ReliabilityPlan) -> list[str]:
    """Return the derivation, line by line."""
    down = plan.entries["detection"] + plan.entries["restart"]
    return [
        f"failures per day: {sum(plan.components.values()):.2f} = "
        + " + ".join(f"{n} {v:.2f}" for n, v in sorted(plan.components.items(), key=lambda c: -c[1])[:5])
        + " …",
        f"mean time between failures: 24 h / {sum(plan.components.values()):.2f} = {plan.mtbf_h.value:.2f} h "
        f"[{plan.mtbf_h.provenance}: {plan.mtbf_h.source}]",
        f"checkpoint: {plan.checkpoint_bytes / 1e9:,.0f} GB at {BYTES_PER_PARAMETER} B per parameter; "
        f"{plan.checkpoint} stops the job for {plan.stop_s:.2f} s, safe after {plan.write_s:.1f} s",
        f"Young: √(2 × {plan.stop_s:.2f} s × {3600 * plan.mtbf_h.value:.0f} s) = {plan.young_s:.0f} s; "
        f"Daly: {plan.daly_s:.0f} s; best simulated: {plan.interval_s:.0f} s",
        f"goodput: 1 − checkpoints {100 * plan.entries['checkpoints']:.2f} % − lost work "
        f"{100 * plan.entries['lost work']:.2f} % "
        f"− detection and restart {100 * down:.2f} % "
        f"− spares {100 * plan.entries['waiting for a spare']:.2f} % "
        f"= {100 * plan.goodput.value:.1f} %",
    ]
