"""A rank that arrives last at collectives, so that all others wait, and the cause of its lateness."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from statistics import median

from fathom.analysis.communication import (
    WORK,
    ExpertLoad,
    LateRank,
    LostTime,
    cause_of_lateness,
    steadily_late,
)
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of, rows, undisturbed
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals

LEAST = 0.03  # of the step
DOUBT = 0.3
CLEARLY = 0.9  # of the time lost, if host threads communicate
LASTING = 0.5  # of the rank's additional time, also in steps that nothing disturbs
DIFFERENT = 0.05  # of the median rank's: clocks and work that differ by less are equal
UNEVEN = 1.2  # load of the rank's experts over the mean
UNKNOWN, EXPERTS = "communication-straggler", "communication-unbalanced-experts"
INPUT, COMPUTE = "communication-straggler-input", "communication-straggler-compute"
CLOCKS, HOST = "communication-straggler-clocks", "communication-straggler-host"
KIND = {"input": INPUT, "work": COMPUTE, "host": HOST}  # by cause of lateness


@rule(UNKNOWN, INPUT, COMPUTE, CLOCKS, HOST, EXPERTS)
def late(signals: Signals) -> Candidates:
    """Report the rank that is last at most collectives, or that costs the most in most steps.

    After a late rank has arrived at the first collective of a step, it is no later than the others at the
    next ones. The longer rows of its ledger show the cause.
    """
    worst: LateRank = signals["communication.late"][0]
    if not steadily_late(worst) or worst.cost_ms < LEAST * signals["step.timeline_ms"]:
        return
    waiting = list(rows(signals, Entry.WAITING_FOR_PEERS))
    gain = worst.cost_ms
    on_host = signals.get("communication.lead").value
    if not waiting and on_host is not None:
        if not _certain(signals, worst):
            return
        waiting, gain = on_host.claims, min(on_host.ms, worst.cost_ms)
    excess: list[LostTime] = signals.get("communication.excess").value or []
    kind, lost = _cause(signals, worst.rank, excess)
    gain = min(gain, lost) * (undisturbed(signals) if on_host is not None else 1.0)
    yield Candidate(
        kind=kind,
        claims=part_of(waiting, gain),
        evidence=[
            Evidence(f"collectives at which rank {worst.rank} is the last", worst.last, f"of {worst.of}"),
            Evidence(f"lateness of rank {worst.rank} behind the median rank", worst.behind_ms, "ms"),
            *(_more(signals, worst.rank, row) for row in excess[:2]),
            *_beside(signals, worst.rank),
        ],
        gain_ms=gain,
        doubt=DOUBT if on_host is None else _doubt(signals, gain),
        confidence=0.8,
        check=f"fathom report NAME.fathom --rank {worst.rank}",
    )


def _doubt(signals: Signals, gain: float) -> float:
    """Return the doubt about a gain, in which all of the additional time that nothing disturbs may be saved.

    On a busy host, other ranks are late in the few recorded steps, too, more or less often than in others.
    """
    cause, _ = cause_of_lateness(signals.get("communication.excess").value or [])
    most = (signals.get("ranks.undisturbed").value or {}).get(cause, 0.0) * undisturbed(signals)
    return min(max(DOUBT, most / gain - 1), 1.0) if gain else DOUBT


def _certain(signals: Signals, worst: LateRank) -> bool:
    """Return whether a rank is late because of its program where host threads communicate.

    A busy host may delay one rank in all recorded steps by chance, but neither its FLOPs nor the steps that
    nothing disturbs then differ from those of the others.
    """
    cause, ms = cause_of_lateness(signals.get("communication.excess").value or [])
    if cause == WORK and _share(signals.get("ranks.flops").value, worst.rank, lower=False):
        return True
    if (signals.get("ranks.undisturbed").value or {}).get(cause, 0.0) >= LASTING * ms:
        return True
    return worst.score >= CLEARLY and not signals.get("communication.contended").value


def _more(signals: Signals, rank: int, row: LostTime) -> Evidence:
    """Return the extra time in an entry, in the clean step if that is shorter, as the report shows it."""
    timeline = signals["step.timeline_ms"]
    scale = min(signals.number("step.headline_ms", timeline) / timeline, 1.0)
    return Evidence(f"more time on rank {rank} than on the median rank: {row.entry}", scale * row.ms, "ms")


def _cause(signals: Signals, rank: int, excess: Collection[LostTime]) -> tuple[str, float]:
    """Return the kind and the ms per step, by the entries in which the rank loses most; without known
    entries, the ms are infinite. Clocks and experts explain longer compute.
    """
    cause, ms = cause_of_lateness(excess)
    kind = KIND.get(cause, UNKNOWN)
    if kind == COMPUTE and (over := _beyond_mean(signals, rank)):
        return EXPERTS, over * ms
    return CLOCKS if kind == COMPUTE and _slow_clock(signals, rank) else kind, ms


def _beyond_mean(signals: Signals, rank: int) -> float:
    """Return the part of the rank's excess over the median rank that a mean load would save; at least 0."""
    loads = {load.rank: load.load for load in signals.get("communication.experts").value or []}
    if loads.get(rank, 0.0) < UNEVEN:
        return 0.0
    return (loads[rank] - 1) / (loads[rank] - median(loads[other] for other in loads if other != rank))


def _overloaded(signals: Signals) -> list[ExpertLoad]:
    return [load for load in signals.get("communication.experts").value or [] if load.load >= UNEVEN]


def _slow_clock(signals: Signals, rank: int) -> float | None:
    """Return the share of the other ranks' clock at which the rank's devices run; None if it is not lower."""
    return _share(signals.get("ranks.clocks").value, rank, lower=True)


def _share(values: dict[int, float] | None, rank: int, lower: bool) -> float | None:
    others = [value for other, value in (values or {}).items() if other != rank]
    if not values or rank not in values or not others or not median(others):
        return None
    share = values[rank] / median(others)
    differs = share < 1 - DIFFERENT if lower else share > 1 + DIFFERENT
    return share if differs else None


def _beside(signals: Signals, rank: int) -> Iterator[Evidence]:
    """Return evidence beside the ledger: clocks, work and experts of the rank."""
    if slow := _slow_clock(signals, rank):
        yield Evidence(f"clock of rank {rank}, of the other ranks' median", 100 * slow, "%")
    if more := _share(signals.get("ranks.flops").value, rank, lower=False):
        yield Evidence(f"FLOPs of rank {rank}, of the other ranks' median", 100 * more, "%")
    for load in _overloaded(signals):
        yield Evidence(f"tokens of the experts on rank {load.rank}, of the mean rank", 100 * load.load, "%")
