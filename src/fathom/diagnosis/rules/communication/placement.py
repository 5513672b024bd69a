"""Groups on slow links, pipelines with bubbles, and tokens that are only padding."""

from __future__ import annotations

from msgspec.structs import replace

from fathom.analysis.communication import Pipeline, PlacedGroup, Stage
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import contended, in_mean_step, on_processor, part_of, rows
from fathom.diagnosis.rules.communication.sharding import exposed_claims
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals
from fathom.diagnosis.signals.collectives import Padding
from fathom.units import GB, MB

LEAST = 0.05  # of the step
FASTER = 1.5  # times: links that differ by less are alike
HEAVIER = 2.0  # times the bytes of the group that stays within a host
REACHED = 0.8  # of the links' ceiling, by a well-placed group
MANY = 4  # micro-batches per stage: more gain little
BUBBLE = 0.1  # of the step
UNEVEN = 1.2  # longest stage over the mean one
PADDED = 1.2  # rows moved over rows routed
IDLE = (
    Entry.DEVICE_GAP, Entry.LAUNCH_LATENCY, Entry.UNEXPLAINED, Entry.DISPATCHING, Entry.HOST_WAITS_FOR_PEERS,
)  # fmt: skip


@rule("communication-slow-group")
def slow_group(signals: Signals) -> Candidates:
    """Report a group that spans hosts, although a group that moves less stays within one."""
    groups: list[PlacedGroup] = signals["communication.groups"]
    for wide in groups:
        near = [g for g in groups if g.hosts < wide.hosts and HEAVIER * g.bytes <= wide.bytes]
        near = [g for g in near if len(g.ranks) >= len(wide.ranks) / wide.hosts]
        rate = max((g.bus_bytes_per_s for g in near), default=0.0)
        rate = max(rate, REACHED * (_ceiling(signals) or 0.0))
        if wide.hosts < 2 or not near or rate < FASTER * wide.bus_bytes_per_s or not wide.bus_bytes_per_s:
            continue
        gain = wide.exposed_ms * (1 - wide.bus_bytes_per_s / rate)
        if gain >= LEAST * signals["step.timeline_ms"]:
            yield _moved(signals, wide, near[0], gain)


def _ceiling(signals: Signals) -> float | None:
    rates = (row.ceiling_bytes_per_s for row in signals["communication.account"].collectives)
    return max((rate for rate in rates if rate), default=None)


def _moved(signals: Signals, wide: PlacedGroup, near: PlacedGroup, gain: float) -> Candidate:
    return Candidate(
        claims=exposed_claims(signals, gain),
        evidence=[
            Evidence(f"hosts that group {wide.name} spans, with ranks {_named(wide)}", wide.hosts, "hosts"),
            Evidence(f"bytes of group {wide.name}", wide.bytes / MB, "MB per step"),
            Evidence(f"bus bandwidth of group {wide.name}", wide.bus_bytes_per_s / GB, "GB/s"),
            Evidence(
                f"bytes of group {near.name}, which stays within a host", near.bytes / MB, "MB per step"
            ),
        ],
        gain_ms=gain,
        doubt=0.4,
        confidence=0.8,
    )


def _named(group: PlacedGroup) -> str:
    ranks = [str(rank) for rank in group.ranks]
    return ", ".join(ranks if len(ranks) <= 8 else [*ranks[:7], "..."])


@rule("communication-pipeline-bubble")
def bubble(signals: Signals) -> Candidates:
    """Report bubbles of a pipeline with few micro-batches per stage, or with stages of different length."""
    if not signals["communication.pipeline"]:
        return
    seen: Pipeline = signals["communication.pipeline"][0]
    stages, step = len(seen.stages), signals["step.timeline_ms"]
    idle = step * sum(stage.share for stage in seen.stages) / stages
    longest = max(seen.stages, key=lambda stage: stage.compute_ms)
    many = MANY * stages
    more = step - longest.compute_ms * (1 + (stages - 1) / many) if seen.micro_batches < many else 0.0
    mean_ms = longest.compute_ms / seen.imbalance
    even = step - mean_ms / (1 - seen.expected) if seen.imbalance >= UNEVEN else 0.0
    gain = min(idle, max(more, even))
    if idle < BUBBLE * step or gain <= 0:
        return
    moving = rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES, Entry.WAITING_FOR_PEERS, *IDLE)
    candidate = Candidate(
        claims=part_of(moving, gain),
        evidence=[
            Evidence(f"mean bubble of {stages} stages", 100 * idle / step, "% of the step"),
            Evidence(f"micro-batches, {seen.schedule}", seen.micro_batches, "per step"),
            Evidence("bubble of equally long stages", 100 * seen.expected, "% of the step"),
            Evidence("longest stage, of the mean one", 100 * seen.imbalance, "%"),
        ],
        gain_ms=in_mean_step(signals, gain) if on_processor(signals) else gain,
        doubt=1.0 if contended(signals) else 0.3,  # stages that share processors do not gain for sure
        confidence=0.85,
    )
    yield _uneven(candidate, longest) if even > more else candidate


def _uneven(candidate: Candidate, longest: Stage) -> Candidate:
    """Return the candidate with the texts for stages of different length."""
    stage = f"stage {longest.place} (rank {longest.rank})"
    return replace(
        candidate,
        title="One pipeline stage computes longer than the others, which wait for it",
        action=f"Move layers from {stage} to other stages",
        mechanism="Each micro-batch passes through all stages, so the longest one sets their pace. The "
        "predicted gain is that of equally long stages with as many micro-batches.",
        remedy=f"# split the model where stages take equally long: {stage} has too many layers now\n"
        "# the embedding and the head are work, too",
    )


@rule("communication-padded-tokens")
def padded(signals: Signals) -> Candidates:
    """Report exchanges of more rows than the router routes."""
    if not signals["communication.padding"]:
        return
    seen: Padding = signals["communication.padding"][0]
    gain = seen.exposed_ms * (1 - 1 / seen.factor) if seen.factor > 0 else 0.0
    if seen.factor < PADDED or gain < LEAST * signals["step.timeline_ms"]:
        return
    mine = [c for c in rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES) if c.detail in seen.families]
    yield Candidate(
        claims=part_of(mine, gain),
        evidence=[
            Evidence("rows that each all-to-all moves", seen.rows, "rows"),
            Evidence("rows that the router routes: tokens times experts per token", seen.routed, "rows"),
            Evidence("exposed time of these exchanges", seen.exposed_ms, "ms per step"),
        ],
        gain_ms=gain,
        doubt=0.4,
        confidence=0.7,
    )
