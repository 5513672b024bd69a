"""Checkpoints of a planned run: their size, how long each stops the job, and the goodput that remains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.quantity import CALIBRATED, Quantity, spread
from fathom.planner.reliability import (
    Checkpoint,
    ReliabilityPlan,
    Run,
    expected_goodput,
    failures_of,
    plan_reliability,
)
from fathom.planner.reliability.checkpoints import BYTES_PER_PARAMETER, KINDS, SOURCE
from fathom.planner.training.results import Assumption, Interval, Saving
from fathom.units import GB

DAYS = 30.0  # of a run whose length is not given
_COSTLY = 0.01  # of the time: checkpoints that stop the job for longer are reported
_SIZES = 0.02  # spread of published checkpoints about the calibrated size
_COPY = 0.3  # spread of the time to copy to the host, in the logarithm (assumed)


@dataclass(frozen=True)
class Saver:
    """How a job saves its state: `every` steps (the best if None), by every host or by one."""

    kind: str = "async"
    every: int | None = None
    one_writer: bool = False
    mtbf_h: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInputError(
                f"{self.kind!r} is not a kind of checkpoint; choose one of {', '.join(KINDS)}."
            )
        if self.every is not None and self.every < 1:
            raise BadInputError(f"A checkpoint every {self.every} steps is impossible; give 1 or more.")
        if self.one_writer and self.kind == "memory":
            raise BadInputError(
                "Checkpoints in memory have no single writer; leave --one-writer out, or use async."
            )


@dataclass(frozen=True)
class State:
    """The state of a job to save: its bytes, whether ranks share it, and the steps that change it."""

    size: Quantity
    is_shared: bool  # by sharding or model parallelism: one writer gathers it first
    gpus: int
    step_s: float
    hours: float | None = None

    @classmethod
    def of_model(
        cls, parameters: float, is_shared: bool, gpus: int, step_s: float, hours: float | None
    ) -> State:
        """Return the state of a model in mixed precision with Adam."""
        size = spread(parameters * BYTES_PER_PARAMETER, _SIZES, "B", CALIBRATED, SOURCE)
        return cls(size, is_shared, gpus, step_s, hours)


def saving_of(saver: Saver, system: Hardware, state: State) -> Saving:
    """Return the checkpoints of a run. Raises BadInputError if failures leave no progress."""
    run = _run(saver, system, state)
    plan = plan_reliability(run)
    interval_s = max(1, round(plan.interval_s / state.step_s)) * state.step_s
    checkpoint = run.checkpoint
    rows = list(_assumptions(saver, system, state, run, interval_s))
    write, stop = _spans(saver, system, state)
    return Saving(
        bytes=checkpoint.size,
        kind=saver.kind,
        writers=_writers(saver, system, state.gpus),
        storage=checkpoint.storage,
        write_s=write,
        stop_s=stop,
        every_steps=max(1, round(plan.interval_s / state.step_s)),
        interval_s=interval_s,
        share=plan.entries["checkpoints"],
        mtbf_h=plan.mtbf_h.value,
        goodput=_goodput(plan, rows),
        wall_hours=state.hours / plan.goodput.value if state.hours else None,
        assumptions=rows,
    )


def _writers(saver: Saver, system: Hardware, gpus: int) -> int:
    return 1 if saver.one_writer else math.ceil(gpus / system["host_gpus"].value)


def _run(saver: Saver, system: Hardware, state: State) -> Run:
    gather = state.size.value / _port(system, state.gpus) if saver.one_writer and state.is_shared else 0.0
    return Run(
        gpus=state.gpus,
        days=state.hours / 24 if state.hours else DAYS,
        parameters=state.size.value / BYTES_PER_PARAMETER,
        failures=failures_of(system.system, None, saver.mtbf_h, state.gpus),
        kind=saver.kind,
        storage=_writers(saver, system, state.gpus) * system["storage"].value,
        interval_s=saver.every * state.step_s if saver.every else None,
        size=state.size.value,
        copies=1 if saver.one_writer else None,
        gather_s=gather,
    )


def _port(system: Hardware, gpus: int) -> float:
    """Return the bandwidth into the GPU that gathers the state."""
    inner = system.fabric[0]
    return inner.rate if gpus <= (inner.gpus or gpus) else system.fabric[-1].rate


def _spans(saver: Saver, system: Hardware, state: State) -> tuple[Interval, Interval]:
    """Return the time until a checkpoint is safe, and for which it stops the job."""
    low, high = system["storage"].interval
    slow, usual, fast = (
        _run(saver, _with_storage(system, rate), state).checkpoint
        for rate in (low, system["storage"].value, high)
    )
    copied = [usual.stop_s * math.exp(sign * 1.645 * _COPY) for sign in (-1, 1)]
    stop = (fast.stop_s, slow.stop_s) if saver.kind == "sync" else copied
    write = (fast.write_s, slow.write_s) if saver.kind != "memory" else copied
    return Interval(usual.write_s, *write), Interval(usual.stop_s, *stop)


def _with_storage(system: Hardware, rate: float) -> Hardware:
    return system.having(storage=replace(system["storage"], value=rate))


def _goodput(plan: ReliabilityPlan, rows: list[Assumption]) -> Interval:
    """Return the goodput; its interval joins that of failures with that of the storage."""
    value, (low, high) = plan.goodput.value, plan.goodput.interval
    storage = next(abs(row.moves) / 2 for row in rows if row.name == "storage")
    return Interval(
        value,
        max(0.0, value - math.hypot(value - low, storage)),
        min(1.0, value + math.hypot(high - value, storage)),
    )


def _assumptions(
    saver: Saver, system: Hardware, state: State, run: Run, interval_s: float
) -> Iterator[Assumption]:
    """Yield the figures behind the goodput, by Daly's formula at the chosen interval."""
    mtbf, storage = run.failures.mtbf_h(run.gpus), system["storage"]

    def goodput(checkpoint: Checkpoint, hours: float) -> float:
        down = run.detection_s + run.restart_s + checkpoint.load_s
        stop = max(checkpoint.stop_s, checkpoint.write_s - interval_s)
        try:
            return expected_goodput(interval_s, stop, down, 3600 * hours)
        except OverflowError:  # the job fails many times before its next checkpoint
            return 0.0

    sizes = [replace(run.checkpoint, size=end) for end in state.size.interval]
    rates = [_run(saver, _with_storage(system, end), state).checkpoint for end in storage.interval]
    yield _row("storage", storage, *(goodput(checkpoint, mtbf.value) for checkpoint in rates))
    yield _row("hours between failures", mtbf, *(goodput(run.checkpoint, end) for end in mtbf.interval))
    yield _row("checkpoint bytes", state.size, *(goodput(checkpoint, mtbf.value) for checkpoint in sizes))


def _row(name: str, q: Quantity, low: float, high: float) -> Assumption:
    return Assumption(name, q.value, *q.interval, q.provenance, q.source, high - low)


def saving_notes(saver: Saver, system: Hardware, state: State, saving: Saving) -> list[str]:
    """Return notes on the checkpoints of a plan."""
    rules: list[tuple[bool, Callable[[], str]]] = [
        (
            saving.kind == "async" and saving.write_s.value > saving.interval_s,
            lambda: (
                f"Writing a checkpoint takes {saving.write_s.value:.3g} s, longer than the "
                f"{saving.interval_s:.3g} s between two; storage of "
                f"{saving.storage * saving.write_s.value / saving.interval_s / saving.writers / GB:.3g} GB/s "
                "per host would keep up."
            ),
        ),
        (
            saving.share > _COSTLY,
            lambda: (
                f"Checkpoints stop the job for {100 * saving.share:.1f} % of the time; "
                f"{_better(saver, system, state, saving)}"
            ),
        ),
    ]
    return [words() for holds, words in rules if holds]


def _better(saver: Saver, system: Hardware, state: State, saving: Saving) -> str:
    """Return the change that shortens the stop most, in words."""
    tried = {"a part written by every host": replace(saver, one_writer=False)}
    if saver.kind == "sync":
        tried["async checkpoints"] = replace(saver, kind="async")
        tried["async checkpoints, of which every host writes a part,"] = replace(
            saver, kind="async", one_writer=False
        )
    stops = {name: _run(other, system, state).checkpoint.stop_s for name, other in tried.items()}
    best = min(stops, key=lambda name: stops[name])
    if stops[best] >= saving.stop_s.value:
        return "save less often, or use faster storage."
    return f"{best} would stop it for {stops[best]:.3g} s instead of {saving.stop_s.value:.3g} s."


def saving_derivation(saving: Saving) -> Iterator[str]:
    """Yield the derivation of the checkpoints, line by line."""
    yield (
        f"checkpoint: {saving.bytes / GB:,.4g} GB over {saving.writers} "
        f"{'host' if saving.writers == 1 else 'hosts'} at {saving.storage / GB:.4g} GB/s in all: safe after "
        f"{saving.write_s.value:.4g} s, stops the job for {saving.stop_s.value:.4g} s ({saving.kind})"
    )
    yield (
        f"one every {saving.every_steps} steps ({saving.interval_s:.4g} s of work): stops "
        f"{saving.stop_s.value:.4g} / ({saving.interval_s:.4g} + {saving.stop_s.value:.4g}) = "
        f"{100 * saving.stop_s.value / (saving.interval_s + saving.stop_s.value):.2f} % of the time"
    )
    yield f"goodput with a failure every {saving.mtbf_h:.4g} h: {100 * saving.goodput.value:.1f} %"
    for row in saving.assumptions:
        yield (
            f"  {row.name}: {row.value:.4g} ({row.low:.4g} to {row.high:.4g}) moves the goodput by "
            f"{100 * row.moves:+.2f} points [{row.provenance}: {row.source}]"
        )
