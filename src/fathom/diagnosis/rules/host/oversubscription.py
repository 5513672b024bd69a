"""Loader workers that each run several threads, on cores that have no time for them."""

from __future__ import annotations

from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals

ENTRY = "idle: input"
FULL = 0.9  # of the cores that the program may use
THREADS = 1.3  # cores that are busy for each process: more, and processes run threads that compute


@rule("host-cpu-oversubscription")
def oversubscription(signals: Signals) -> Found:
    """Workers that compute one thread each keep no more cores busy than there are of them."""
    idle = spent(signals, ENTRY)
    if not idle:
        return
    workers, busy, cores = signals["input.workers"], signals["host.busy_cores"], signals["host.cores"]
    processes = workers + 1
    if not workers or processes > cores or busy < FULL * cores or busy < THREADS * processes:
        return
    yield Candidate(
        kind="host-cpu-oversubscription",
        claims=list(rows(signals, ENTRY)),
        evidence=[
            Evidence("the device has nothing to do until a batch comes", idle, "ms a step"),
            Evidence(f"cores are busy, of {cores:g} that the program may use", busy, "cores"),
            Evidence(f"of them for each of {processes} processes", busy / processes, "cores"),
        ],
        changes=("input=0",),
        doubt=0.4,
        confidence=0.7,
        check="OMP_NUM_THREADS=1 MKL_NUM_THREADS=1, and time the step",
    )
