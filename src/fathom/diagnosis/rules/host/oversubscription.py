"""Loader workers, or ops on the CPU, with more compute threads than there are cores."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import spent
from fathom.diagnosis.rules.input.loader import Loader, loader_of, lost_of, waiting
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals

LEAST = 0.05  # of a batch's time waiting for a core: below it, there are enough cores
LEAST_OPS = 0.2  # of the step
FULL = 0.9  # busy share of the cores that the program may use
BUSY = 1.3  # busy cores per process: above it, processes run several compute threads


@rule("host-cpu-oversubscription")
def oversubscription(signals: Signals) -> Candidates:
    """Find too many threads in workers: torch's by their recorded number, other libraries' by busy cores."""
    yield from _ops(signals)
    seen, lost = lost_of(signals)
    if not lost or not signals["input.workers"] or _has_cores(signals):
        return
    loader = loader_of(signals, lost)
    claims = waiting(signals)
    if loader and (loader.held_by_pinning or not (claims or loader.behind)):
        return  # other rules claim this time: without a row of the ledger it would be counted twice
    torch_threads = [] if loader is None else _threads(loader)
    shown = torch_threads or _pools(signals)
    if not shown:
        return
    yield Candidate(
        claims=claims,
        evidence=[*shown, *_waits(signals), Evidence("wait for batches", lost, "ms per step")],
        changes=("input=0",) if seen is None else (),
        gain_ms=seen,
        doubt=0.4,  # with one thread each, workers may still be too slow
        confidence=0.85 if torch_threads else 0.7,
        check="set OMP_NUM_THREADS=1 and torch.set_num_threads(1) in workers, and time the step",
    )


def _ops(signals: Signals) -> Candidates:
    """Find steps computed on the CPU whose ops use more threads than there are cores.

    An op waits for its slowest thread, so it lasts longer; by how much depends on the sizes of the ops.
    """
    threads, cores = signals.get("host.threads").value, signals.get("host.cores").value
    work = spent(signals, Entry.OPS)
    if not threads or not cores or threads <= cores or work < LEAST_OPS * signals["step.timeline_ms"]:
        return
    yield Candidate(
        claims=[],
        evidence=[
            Evidence("threads for each op", threads, "threads"),
            Evidence("cores available", cores, "cores"),
            Evidence("work of ops", work, "ms per step"),
        ],
        confidence=0.85,
        costless=True,
        unpredicted="the gain depends on the sizes of the ops, and on what else runs",
        action="Use as many threads as there are cores",
        remedy="torch.set_num_threads(CORES)    # or leave the number to torch, and OMP_NUM_THREADS unset",
        mechanism="An op waits for its slowest thread, which waits for a core if there are more threads.",
        check="set OMP_NUM_THREADS to the number of cores, without torch.set_num_threads, and time the step",
    )


def oversubscribed(signals: Signals, loader: Loader | None) -> bool:
    """Return whether this rule claims the step's wait for batches; `loader` if its stages are known."""
    if not signals.get("input.workers").value or _has_cores(signals):
        return False
    known = None not in (signals.get("host.busy_cores").value, signals.get("host.cores").value)
    return bool((loader and _threads(loader)) or (known and _pools(signals)))


def _has_cores(signals: Signals) -> bool:
    """Return whether workers are known to get a core whenever they are ready to run."""
    share = signals.get("input.cpu_wait_share").value
    return share is not None and share < LEAST


def _waits(signals: Signals) -> list[Evidence]:
    share = signals.get("input.cpu_wait_share").value
    says = "share of the workers' time ready to run without a free core"
    return [] if share is None else [Evidence(says, 100 * share, "%")]


def _threads(loader: Loader) -> list[Evidence]:
    """Return evidence of too many torch threads; empty if there are not, or if their number is unknown."""
    if not loader.threads_exceed_cores:
        return []
    each = f"threads of {loader.workers} workers with {loader.threads} each"
    return [
        Evidence(each, loader.workers * (loader.threads or 1), "threads"),
        Evidence("cores available", loader.cores or 0, "cores"),
    ]


def _pools(signals: Signals) -> list[Evidence]:
    """Return evidence of busy cores; workers with one thread each keep at most one core per process busy."""
    processes, busy, cores = signals["input.workers"] + 1, signals["host.busy_cores"], signals["host.cores"]
    if processes > cores or busy < FULL * cores or busy < BUSY * processes:
        return []
    return [
        Evidence(f"busy cores, of {cores:g} that the program may use", busy, "cores"),
        Evidence(f"busy cores for each of {processes} processes", busy / processes, "cores"),
    ]
