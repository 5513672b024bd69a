"""Simulation of a long job: failures, lost work, detection, restart, and hosts under repair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fathom.planner.reliability.checkpoints import Checkpoint

_TRIES = 4.0  # times between failures that a stretch of work takes at most, in the worst trial
ENTRIES = ("productive", "checkpoints", "lost work", "detection", "restart", "waiting for a spare")


@dataclass(frozen=True)
class Job:
    """A job that needs `work_s` of productive time, and what failures cost it.

    `spares` hosts stand by; one that failed is under repair for `repair_h` hours on average.
    """

    work_s: float
    mtbf_s: float
    checkpoint: Checkpoint
    interval_s: float
    detection_s: float = 120.0
    restart_s: float = 480.0
    spares: int | None = None
    repair_h: float = 24.0

    @property
    def cycle_s(self) -> float:
        """Return work and stop between two checkpoints; a write that is not done delays the next."""
        return max(self.interval_s + self.checkpoint.stop_s, self.checkpoint.write_s)


def simulate(job: Job, trials: int = 200, spreads: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """Return seconds by entry (a column each) for every trial (a row each).

    `spreads` are those, in the logarithm, of the failure rate and of the times to detect and restart, which
    are drawn once a trial.
    """
    rng = np.random.default_rng(0)
    mtbf = job.mtbf_s * np.exp(spreads[0] * rng.standard_normal(trials))
    slow = np.exp(spreads[1] * rng.standard_normal(trials))
    spent = np.zeros((trials, len(ENTRIES)))
    repairs = np.zeros((trials, (job.spares or 0) + 1)) if job.spares is not None else None
    work, stop = job.cycle_s - job.checkpoint.stop_s, job.checkpoint.stop_s
    shortest = max(min(job.cycle_s, job.work_s) / _TRIES, _TRIES * _unwritten(job))
    mtbf = np.maximum(mtbf, shortest)  # else a trial may hardly ever end
    left = np.full(trials, job.work_s)
    while (active := left > 0).any():
        until = rng.exponential(mtbf)
        need = left + np.ceil(left / work - 1) * stop  # the last part needs no checkpoint
        ends = active & (until >= need)
        fails = active & ~ends
        saved = np.floor(until / (work + stop))
        spent[ends, 0] += left[ends]
        spent[ends, 1] += (need - left)[ends]
        spent[fails, 0] += (saved * work)[fails]
        spent[fails, 1] += (saved * stop)[fails]
        spent[fails, 2] += (until - saved * (work + stop))[fails] + _unwritten(job)
        spent[fails, 0] -= _unwritten(job)
        spent[fails, 3] += job.detection_s * slow[fails]
        spent[fails, 4] += (job.restart_s * slow + job.checkpoint.load_s)[fails]
        left = np.where(ends, 0.0, np.where(fails, left - saved * work + _unwritten(job), left))
        if repairs is not None:
            spent[:, 5] += np.where(fails, _waited(repairs, spent.sum(1), job, rng), 0.0)
    return spent


def _unwritten(job: Job) -> float:
    """Return the work after a checkpoint's start that is lost if it is not yet written, on average."""
    checkpoint = job.checkpoint
    late = checkpoint.write_s - checkpoint.stop_s
    return late * min(1.0, late / job.cycle_s) if late > 0 else 0.0


def _waited(repairs: np.ndarray, now: np.ndarray, job: Job, rng: np.random.Generator) -> np.ndarray:
    """Return the wait for a host: none if a spare is free, else until the first repair is done.

    `repairs` holds, for every trial, when each of the last hosts comes back.
    """
    rows = np.arange(len(repairs))
    first = repairs.argmin(1)
    wait = np.maximum(0.0, repairs[rows, first] - now)
    repairs[rows, first] = now + wait + rng.exponential(3600 * job.repair_h, len(repairs))
    return wait
