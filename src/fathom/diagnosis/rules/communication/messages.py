"""Collectives that are too many, too small or too wide."""

from __future__ import annotations

from collections.abc import Collection

from fathom.analysis.communication import Communication
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import on_processor, part_of, rows
from fathom.diagnosis.rules.communication.exposed import described
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Product, Repeated, Signals, SmallMessages
from fathom.diagnosis.signals.communication import LARGE, REDUCES
from fathom.units import MB

NARROW = ("bf16", "fp16")
MOSTLY = 0.9  # of the products' time in a narrow type
HALF = 0.5  # of the bytes
EXPOSED = 0.03  # of the step


def _change(signals: Signals, families: Collection[str], factor: float, share: float) -> tuple[str, ...]:
    """Return changes of kernel families: `share` of their time is multiplied by `factor`."""
    details = {claim.detail for claim in rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES)}
    return tuple(f'family:"{name}"={1 - share * (1 - factor):.6f}' for name in families if name in details)


def _claims(signals: Signals, families: Collection[str], share: float) -> list[Claim]:
    exposed = rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES)
    return [Claim(c.entry, c.detail, share * c.ms) for c in exposed if c.detail in families]


def _share(signals: Signals, families: Collection[str], ms: float) -> float:
    """Return the share of these collectives in the time of their families, which may have other
    collectives.
    """
    account: Communication = signals["communication.account"]
    total = sum(row.total_ms for row in account.collectives if set(row.families) & set(families))
    return min(ms / total, 1.0) if total else 0.0


@rule("communication-small-messages")
def small(signals: Signals) -> Candidates:
    """Find collectives to merge because they run back to back; each one merged saves its
    fixed time.
    """
    for messages in signals["communication.small"]:
        yield _joined_on_host(signals, messages) if on_processor(signals) else _joined(signals, messages)


def _evidence(messages: SmallMessages) -> list[Evidence]:
    return [
        Evidence(f"small {messages.operation} calls that run back to back", messages.count, "per step"),
        Evidence("mean size", messages.bytes / messages.count / MB, "MB"),
        Evidence("time of all", messages.ms, "ms per step"),
    ]


def on_host(signals: Signals, ms: float) -> list[Claim]:
    """Return claims of `ms` of the time that the host spends in collectives and in calling them."""
    mine = rows(signals, Entry.MOVING_BYTES, Entry.HOST_WAITS_FOR_PEERS, Entry.PYTHON)
    mine += [claim for claim in rows(signals, Entry.OPS) if claim.detail.startswith("c10d::")]
    return part_of(mine, ms)


def _joined_on_host(signals: Signals, messages: SmallMessages) -> Candidate:
    """Return the candidate if host threads communicate: a run then lasts from its first call to its
    last end.
    """
    timeline = signals["step.timeline_ms"]
    undisturbed = min(
        signals.number("step.mean_ms", timeline) / timeline, 1.0
    )  # calls are slower if profiled
    gain = undisturbed * messages.wall_ms * messages.saved
    return Candidate(
        kind="communication-small-messages",
        claims=on_host(signals, gain),
        evidence=_evidence(messages),
        gain_ms=gain,
        doubt=0.3,
    )


def _joined(signals: Signals, messages: SmallMessages) -> Candidate:
    share = _share(signals, messages.families, messages.ms)
    return Candidate(
        kind="communication-small-messages",
        claims=_claims(signals, messages.families, share * messages.saved),
        evidence=_evidence(messages),
        changes=_change(signals, messages.families, 1 - messages.saved, share),
        doubt=0.3,
        family=messages.families[0] if messages.families else None,
    )


@rule("communication-repeated-in-accumulation")
def repeated(signals: Signals) -> Candidates:
    """Find reductions repeated in every micro-step; only the last one of a step is needed."""
    reductions: list[Repeated] = signals["communication.repeated"]
    if not reductions:
        return
    largest = max(reductions, key=lambda reduction: reduction.ms)
    families = {family for reduction in reductions for family in reduction.families}
    share = _share(signals, families, sum(reduction.ms for reduction in reductions))
    factor = 1 / largest.micro_steps
    here = on_processor(signals)
    # Host threads that communicate share the processor with the program, so only exposed time counts.
    gain = (1 - factor) * min(signals["communication.account"].exposed_ms, sum(r.ms for r in reductions))
    yield Candidate(
        kind="communication-repeated-in-accumulation",
        claims=on_host(signals, gain) if here else _claims(signals, families, share * (1 - factor)),
        evidence=[
            Evidence("micro-steps that reduce the same sizes", largest.micro_steps, "per step"),
            Evidence(f"{largest.operation} calls of equal size", largest.count, "per step"),
            Evidence("size of one", largest.bytes / MB, "MB"),
        ],
        changes=() if here else _change(signals, sorted(families), factor, share),
        gain_ms=gain if here else None,
        doubt=0.3,
        confidence=0.85,
    )


@rule("communication-wide-gradients")
def wide(signals: Signals) -> Candidates:
    """Find large float32 reductions in a program that multiplies in a narrower dtype."""
    account: Communication = signals["communication.account"]
    reductions = [
        row
        for row in account.collectives
        if row.operation in REDUCES and row.dtype == "fp32" and (row.bytes or 0) >= LARGE
    ]
    exposed = sum(row.exposed_ms for row in reductions)
    if exposed < EXPOSED * signals["step.timeline_ms"] or not _narrow(signals["numbers.products"]):
        return
    families = sorted({family for row in reductions for family in row.families})
    share = _share(signals, families, sum(row.total_ms for row in reductions))
    yield Candidate(
        kind="communication-wide-gradients",
        claims=_claims(signals, families, share * HALF),
        evidence=[
            Evidence(f"exposed {described(row)}", row.exposed_ms, "ms per step") for row in reductions[:3]
        ],
        changes=_change(signals, families, HALF, share),
        doubt=0.4,
        confidence=0.7,
    )


def _narrow(products: list[Product]) -> bool:
    """Whether most of the products' time is in bfloat16 or float16."""
    total = sum(product.work.ms for product in products)
    return total > 0 and sum(p.work.ms for p in products if p.dtype in NARROW) >= MOSTLY * total
