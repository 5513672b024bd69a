"""Collectives that take longer in some steps than in others."""

from __future__ import annotations

from fathom.analysis.communication import steadily_late
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of, rows, undisturbed
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals
from fathom.diagnosis.signals.ranks import Varying

LEAST = 0.05  # of the step
ON_HOST = 0.15  # of the step, if host threads communicate: a busy host delays a different rank each time
WAITS = (Entry.WAITING_FOR_PEERS, Entry.HOST_WAITS_FOR_PEERS)
MOVES = (Entry.COMMUNICATION, Entry.MOVING_BYTES)


@rule("communication-jitter")
def jitter(signals: Signals) -> Candidates:
    """Report lateness that moves from rank to rank, or transfers that are slow in some steps."""
    seen: Varying = signals["communication.varying"]
    on_host = signals.get("step.device").value == "cpu"
    least = (ON_HOST if on_host else LEAST) * signals["step.timeline_ms"]
    by_turns = 0.0 if steadily_late(signals["communication.late"][0]) else seen.late_ms
    # Hosts lose their lead at the start of a burst, so lateness costs more there than in clean steps.
    by_turns = min(by_turns, signals.number("step.beyond_shortest_ms", by_turns))
    if max(by_turns, seen.transfer_ms) < least:
        return
    late = by_turns >= seen.transfer_ms
    gain = (by_turns if late else seen.transfer_ms) * (undisturbed(signals) if on_host else 1.0)
    yield Candidate(
        claims=part_of(rows(signals, *(WAITS if late else MOVES)), gain),
        evidence=_late(seen) if late else _slow(seen),
        gain_ms=gain,
        doubt=0.4,
        confidence=0.7,
        check="fathom report NAME.fathom --all",
    )


def _late(seen: Varying) -> list[Evidence]:
    return [
        Evidence("time lost to late ranks, a different one each time", seen.late_ms, "ms per step"),
        Evidence("ranks that were the last to arrive", seen.ranks, "ranks"),
        Evidence("largest share of this time lost to one rank", 100 * seen.largest, "%"),
    ]


def _slow(seen: Varying) -> list[Evidence]:
    return [
        Evidence("time of transfers beyond the usual one", seen.transfer_ms, "ms per step"),
        Evidence(f"transfer of {seen.operation} after the last arrival, p50", seen.transfer_p50_ms, "ms"),
        Evidence(f"transfer of {seen.operation} after the last arrival, p99", seen.transfer_p99_ms, "ms"),
    ]
