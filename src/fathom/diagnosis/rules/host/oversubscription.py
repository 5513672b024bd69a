"""Loader workers that each run several threads, on cores that have no time for them."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.input.loader import Loader, loader_of
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rows, rule, spent
from fathom.diagnosis.signals import Signals

ENTRY = Entry.INPUT
LEAST = 0.05  # of a batch's time waiting for a processor: with less, there are cores enough
FULL = 0.9  # of the cores that the program may use
BUSY = 1.3  # cores that are busy for each process: more, and processes run threads that compute


@rule("host-cpu-oversubscription")
def oversubscription(signals: Signals) -> Found:
    """Torch tells its threads in a worker; those of other libraries show as cores that are busy."""
    seen = signals.get("input.lost_ms").value
    lost = spent(signals, ENTRY) if seen is None else seen
    if not lost or not signals["input.workers"] or _has_cores(signals):
        return
    loader = loader_of(signals, lost)
    claims = list(rows(signals, ENTRY))
    if loader and (loader.held_by_pinning or not (claims or loader.behind)):
        return  # other rules' milliseconds: without a row of the ledger nothing else keeps them apart
    told = [] if loader is None else _threads(loader)
    shown = told or _pools(signals)
    if not shown:
        return
    yield Candidate(
        kind="host-cpu-oversubscription",
        claims=claims,
        evidence=[
            *shown,
            *_waits(signals),
            Evidence("the step waits for its batches", lost, "ms a step"),
        ],
        changes=("input=0",) if seen is None else (),
        gain_ms=seen,
        doubt=0.4,  # with one thread each, workers may still be too slow
        confidence=0.85 if told else 0.7,
        check="torch.set_num_threads(1) in workers, OMP_NUM_THREADS=1, and time the step",
    )


def crowded(signals: Signals, loader: Loader | None) -> bool:
    """Whether this rule claims what the step waits for batches; `loader`: where its stages are known."""
    if not signals.get("input.workers").value or _has_cores(signals):
        return False
    known = None not in (signals.get("host.busy_cores").value, signals.get("host.cores").value)
    return bool((loader and _threads(loader)) or (known and _pools(signals)))


def _has_cores(signals: Signals) -> bool:
    """Whether workers are known to get a processor whenever they are ready to run."""
    share = signals.get("input.cpu_wait_share").value
    return share is not None and share < LEAST


def _waits(signals: Signals) -> list[Evidence]:
    share = signals.get("input.cpu_wait_share").value
    told = "of the time that batches take, workers are ready to run and have no processor"
    return [] if share is None else [Evidence(told, 100 * share, "%")]


def _threads(loader: Loader) -> list[Evidence]:
    """What shows that torch's threads are too many; nothing where they are not, or not known."""
    if not loader.threads_exceed_cores:
        return []
    each = f"{loader.workers} workers compute with {loader.threads} threads each, together"
    return [
        Evidence(each, loader.workers * (loader.threads or 1), "threads"),
        Evidence("cores may be used", loader.cores or 0, "cores"),
    ]


def _pools(signals: Signals) -> list[Evidence]:
    """Workers that compute in one thread each keep no more cores busy than there are of them."""
    processes, busy, cores = signals["input.workers"] + 1, signals["host.busy_cores"], signals["host.cores"]
    if processes > cores or busy < FULL * cores or busy < BUSY * processes:
        return []
    return [
        Evidence(f"cores are busy, of {cores:g} that the program may use", busy, "cores"),
        Evidence(f"of them for each of {processes} processes", busy / processes, "cores"),
    ]
