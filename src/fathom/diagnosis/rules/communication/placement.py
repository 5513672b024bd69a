"""Groups on slow links, pipelines with bubbles, and tokens that are only padding."""

from __future__ import annotations

from fathom.analysis.communication import Pipeline, PlacedGroup
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import part_of, rows
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
        kind="communication-slow-group",
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
    """Report bubbles of a pipeline with few micro-batches per stage."""
    if not signals["communication.pipeline"]:
        return
    seen: Pipeline = signals["communication.pipeline"][0]
    stages, step = len(seen.stages), signals["step.timeline_ms"]
    mean = sum(stage.share for stage in seen.stages) / stages
    many = MANY * stages
    if mean < BUBBLE or seen.micro_batches >= many:
        return
    longest = max(stage.compute_ms for stage in seen.stages)
    gain = min(mean * step, max(step - longest * (1 + (stages - 1) / many), 0.0))
    moving = rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES, Entry.WAITING_FOR_PEERS, *IDLE)
    yield Candidate(
        kind="communication-pipeline-bubble",
        claims=part_of(moving, gain),
        evidence=[
            Evidence(f"mean bubble of {stages} stages", 100 * mean, "% of the step"),
            Evidence(f"micro-batches, {seen.schedule}", seen.micro_batches, "per step"),
            Evidence("bubble of equally long stages", 100 * seen.expected, "% of the step"),
            Evidence("longest stage, of the mean one", 100 * seen.imbalance, "%"),
        ],
        gain_ms=gain,
        doubt=0.3,
        confidence=0.85,
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
        kind="communication-padded-tokens",
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
