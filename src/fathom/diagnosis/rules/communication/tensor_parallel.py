"""Decodes whose layers are split over more GPUs than is worth their all-reduces."""

from __future__ import annotations

from fathom.analysis.communication import Collective, Communication
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.communication.sharding import exposed_claims
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Signals
from fathom.units import GB

INFERENCE = (
    "decode",
    "inference",
    "inference of one",
)  # without a scheduler, an engine's workers mark no decode
LAYERS = 8  # all-reduces per step, at least: fewer are not from tensor-parallel layers
LEAST = 0.05  # of the step
REACHED = 0.8  # of the ceiling, by the part of a product that other ranks compute now
GROWS = 0.5  # of the kernels whose work is not known: attention and activations are split, norms are not
ROOM = 0.7  # of the memory for the weights; the rest is for the cache


@rule("communication-wide-tensor-parallel")
def too_wide(signals: Signals) -> Outcomes:
    """Find decodes that one GPU would compute in less time than several need for their all-reduces."""
    if signals["step.kind"] not in INFERENCE:
        return
    ranks, reductions = layers_of(signals["communication.account"], signals.get("step.world").value or 0)
    exposed = sum(row.exposed_ms for row in reductions)
    added = (ranks - 1) * part_ms(signals)
    if ranks < 2 or exposed - added < LEAST * signals["step.timeline_ms"]:
        return
    weights = ranks * sum(row.bytes or 0.0 for row in signals["step.ledger"] if row.entry == Entry.COMPUTE)
    if not weights:
        yield NotAnalysed("the bytes of the weights are not known, so they may not fit one GPU")
    elif weights <= ROOM * signals["device.memory_bytes"]:
        yield _candidate(signals, ranks, exposed, added, weights)


def layers_of(account: Communication, world: int) -> tuple[int, list[Collective]]:
    """Return the largest group that all-reduces as often as a model has layers, and its all-reduces.

    In a CUDA graph, kernels do not say which ranks take part: it is at most all of them.
    """
    reductions = [row for row in account.collectives if row.operation == "all_reduce"]
    most = max((row.ranks or world for row in reductions), default=0)
    largest = [row for row in reductions if (row.ranks or world) == most]
    return most, largest if sum(row.count for row in largest) >= LAYERS else []


def part_ms(signals: Signals) -> float:
    """Return the time that one more rank's part of the compute adds to this rank.

    It is the time of all kernels at most; where their work is known, what is fixed in a time is not repeated.
    """
    rows = [row for row in signals["step.ledger"] if row.entry == Entry.COMPUTE]
    again = (GROWS * row.ms if row.at_ceiling_ms is None else row.at_ceiling_ms / REACHED for row in rows)
    return sum(min(more, row.ms) for more, row in zip(again, rows, strict=True))


def _candidate(signals: Signals, ranks: int, exposed: float, added: float, weights: float) -> Candidate:
    return Candidate(
        claims=exposed_claims(signals, exposed - added, "reduce"),
        evidence=[
            Evidence("GPUs that share each layer", float(ranks), ""),
            Evidence("exposed all-reduces", exposed, "ms per step"),
            Evidence("compute that a single GPU would add", added, "ms per step"),
            Evidence("weights of all of them (at most)", weights / GB, "GB"),
        ],
        gain_ms=exposed - added,
        doubt=0.4,
        confidence=0.8,
        check="serve with tensor parallelism over one GPU, and compare the time per token at this batch",
    )
