"""Alternate unchanged and changed stretches of steps, so that drift cancels."""

from __future__ import annotations

from collections.abc import Collection

from fathom.probe.orders import Job
from fathom.probe.plan import TRIALS

PREFIX = "trial-"
BASELINE = PREFIX + "baseline"
ROUNDS, ENOUGH = 5, 3
LEAST_STEPS, MOST_STEPS, STRETCH_NS = 8, 24, 200_000_000
WARM = 2  # steps after each change that do not count
MOST_WAIT = 100  # steps that an unchanged stretch waits to resemble the one before the trial


def jobs(kinds: Collection[str], step_ns: float) -> list[Job]:
    """Return the stretches of these trials in order, beginning and ending with an unchanged one."""
    wanted = [kind for kind in TRIALS if kind in kinds]
    if not wanted:
        return []
    windows = min(MOST_STEPS, max(LEAST_STEPS, round(STRETCH_NS / max(step_ns, 1))))
    unchanged = Job(BASELINE, windows)
    return [*([unchanged, *(Job(PREFIX + kind, windows) for kind in wanted)] * ROUNDS), unchanged]


def without(left: list[Job], phase: str) -> list[Job]:
    """Return the jobs without those of `phase`. If no trial remains, keep only one unchanged stretch."""
    kept = [job for job in left if job.phase != phase]
    compared = any(job.phase.startswith(PREFIX) and job.phase != BASELINE for job in kept)
    if compared or len(kept) == len(left):
        return kept
    unchanged = [job for job in kept if job.phase == BASELINE]
    return [*unchanged[:1], *(job for job in kept if job.phase != BASELINE)]
