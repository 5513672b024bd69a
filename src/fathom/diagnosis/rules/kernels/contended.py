"""Kernels whose warps wait while L2 performs contended atomics, recognised by counters alone."""

from __future__ import annotations

from collections.abc import Collection

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, NotAnalysed, Outcomes
from fathom.diagnosis.signals import Family, Signals

KIND = "kernels-atomics"
NEEDED = ("occupancy", "l1_to_l2", "l1_from_l2")
SHARE = 0.03  # of the step
OCCUPIED = 50.0  # percent occupancy: above it, the low utilisation is not due to a lack of warps
IDLE = 0.1  # of the nearest ceiling
SENT = 0.1  # percent: below it, the warps do not wait for L2
UNANSWERED = 5.0  # requests over responses; loads need at most two requests per sector
REACHED = 0.5  # of the nearest ceiling, by kernels that add in registers and shared memory first


def contended(signals: Signals, but: Collection[str] = ()) -> Outcomes:
    """Find resident warps that use little and send requests to L2 without responses: serialised atomics.

    Families named in `but` are skipped; without counters the kind is not analysed.
    """
    counted = signals.get("kernels.counted")
    if counted.value is None:
        yield NotAnalysed(KIND, counted.why)
        return
    large = [
        family
        for family in counted.value
        if family.name not in but and family.ms >= SHARE * signals["step.timeline_ms"]
    ]
    yield from (_candidate(family) for family in large if _queues(family))
    if large and not any(_measured(family) for family in large):
        yield NotAnalysed(KIND, f"its kernels have no value for {', '.join(NEEDED)}")


def _measured(family: Family) -> bool:
    return family.used is not None and family.measures.keys() >= set(NEEDED)


def _queues(family: Family) -> bool:
    measures = family.measures
    if family.used is None or not _measured(family):
        return False
    sent, answered = measures["l1_to_l2"], measures["l1_from_l2"]
    idle = family.used <= IDLE and measures["occupancy"] >= OCCUPIED
    return idle and sent >= SENT and sent > UNANSWERED * answered


def _candidate(family: Family) -> Candidate:
    factor = min((family.used or 0.0) / REACHED, 1.0)
    return Candidate(
        kind=KIND,
        claims=[Claim(Entry.COMPUTE, family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence("occupancy: resident warps, which wait", family.measures["occupancy"], "%"),
            Evidence("utilisation of the nearest ceiling", 100 * (family.used or 0.0), "%"),
            Evidence("share of time with requests sent to L2", family.measures["l1_to_l2"], "%"),
            Evidence("utilisation of the return path from L2", family.measures["l1_from_l2"], "%"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.3,
        confidence=0.7,
        check=f"fathom dive SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
