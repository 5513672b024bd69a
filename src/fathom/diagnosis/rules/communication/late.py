"""A rank that arrives last at collectives, so that all others wait."""

from __future__ import annotations

from fathom.analysis.communication import LateRank
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import rows
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Signals

LEAST = 0.03  # of the step
MOSTLY = 0.5  # of the collectives, and of the time lost to late ranks: below it, ranks are late by turns
ENOUGH = 4  # collectives, or steps
CLEARLY = (
    0.9  # of the time lost, if host threads communicate: the scheduler of a busy host delays ranks by turns
)


@rule("communication-straggler")
def late(signals: Signals) -> Candidates:
    """Report the rank that is last at most collectives, or that costs the most in most steps.

    After a late rank has arrived at the first collective of a step, it is no later than the others at the
    next ones. The longer rows of its ledger show the cause.
    """
    worst: LateRank = signals["communication.late"][0]
    always = worst.last >= max(MOSTLY * worst.of, ENOUGH)
    each_step = worst.steps >= max(MOSTLY * worst.of_steps, ENOUGH)
    often = (always or each_step) and worst.score > MOSTLY
    if not often or worst.cost_ms < LEAST * signals["step.timeline_ms"]:
        return
    waiting = list(rows(signals, Entry.WAITING_FOR_PEERS))
    gain = worst.cost_ms
    on_host = signals.get("communication.lead").value
    if not waiting and on_host is not None:
        if worst.score < CLEARLY:
            return
        waiting, gain = on_host.claims, on_host.ms
    total = sum(claim.ms for claim in waiting)
    share = min(gain / total, 1.0) if total else 0.0
    yield Candidate(
        kind="communication-straggler",
        claims=[Claim(claim.entry, claim.detail, share * claim.ms) for claim in waiting],
        evidence=[
            Evidence(f"collectives at which rank {worst.rank} is the last", worst.last, f"of {worst.of}"),
            Evidence(f"lateness of rank {worst.rank} behind the median rank", worst.behind_ms, "ms"),
            *(
                Evidence(f"more time on rank {worst.rank} than on the median rank: {row.entry}", row.ms, "ms")
                for row in (signals.get("communication.excess").value or [])[:2]
            ),
        ],
        gain_ms=gain,
        doubt=0.3,
        confidence=0.8,
        check=f"fathom report NAME.fathom --rank {worst.rank}",
    )
