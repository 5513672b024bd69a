"""Collectives that are too many, too small or too wide."""

from __future__ import annotations

import re
from collections.abc import Collection

from fathom.analysis.communication import Collective, Communication
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import (
    claims_of,
    contended,
    ms_of,
    on_processor,
    part_of,
    rows,
    undisturbed,
)
from fathom.diagnosis.rules.communication.blocking import IDLE
from fathom.diagnosis.rules.communication.exposed import described
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Product, Repeated, Signals, Skew, SmallMessages, Work
from fathom.diagnosis.signals.collectives import REDUCING
from fathom.diagnosis.signals.communication import LARGE, REDUCES
from fathom.units import MB, MS_PER_S

NARROW = ("bf16", "fp16")
MOSTLY = 0.9  # of the products' time in a narrow type
HALF = 0.5  # of the bytes
CONVERTED = 4.0  # times the bytes of fp32 gradients that casting and casting back read and write: 16 B for 4
EXPOSED = 0.03  # of the step
PREEMPTED_DOUBT = 0.5  # a call that is not made can lose no processor, but how often it would is unknown


def _change(signals: Signals, families: Collection[str], factor: float, share: float) -> tuple[str, ...]:
    """Return changes of kernel families: `share` of their time is multiplied by `factor`."""
    details = {claim.detail for claim in rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES)}
    return tuple(f'family:"{name}"={1 - share * (1 - factor):.6f}' for name in families if name in details)


def _claims(signals: Signals, families: Collection[str], share: float) -> list[Claim]:
    exposed = rows(signals, Entry.COMMUNICATION, Entry.MOVING_BYTES)
    return [Claim(c.entry, c.detail, share * c.ms) for c in exposed if c.detail in families]


def _share(signals: Signals, families: Collection[str], ms: float) -> float:
    """Return the share of these collectives in the time of their families, which may have others too."""
    account: Communication = signals["communication.account"]
    total = sum(row.total_ms for row in account.collectives if set(row.families) & set(families))
    return min(ms / total, 1.0) if total else 0.0


@rule("communication-small-messages")
def small(signals: Signals) -> Candidates:
    """Find collectives to merge because they run back to back; each one merged saves its fixed time."""
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
    """Return the candidate if host threads communicate.

    If other programs use up the processors, the threads of each call wait for one, and so do those of a
    merged call. Clean steps may then be longer than the profiled ones, and calls have the same share of both.
    """
    timeline, busy = signals["step.timeline_ms"], contended(signals)
    scale = signals.number("step.mean_ms", timeline) / timeline if busy else undisturbed(signals)
    gain = scale * messages.exposed_ms * messages.saved
    return Candidate(
        claims=on_host(signals, gain),
        evidence=_evidence(messages),
        gain_ms=gain,
        doubt=PREEMPTED_DOUBT if busy else 0.3,
        source=messages.source,
    )


def _joined(signals: Signals, messages: SmallMessages) -> Candidate:
    share, saved = _share(signals, messages.families, messages.ms), messages.saved
    account: Communication = signals["communication.account"]
    calls = messages.count / max(sum(row.count for row in account.collectives), messages.count)
    calling = _calling(signals, calls * (1 - messages.runs / messages.count))
    claims = [*_claims(signals, messages.families, share * saved), *calling]
    if calling:  # if the device runs dry meanwhile, the host's calls cost as much as the transfers
        claims += _waits(signals, messages.families, share * saved)
    return Candidate(
        claims=claims,
        evidence=_evidence(messages),
        changes=() if calling else _change(signals, messages.families, 1 - saved, share),
        gain_ms=ms_of(claims) if calling else None,
        doubt=0.3,
        source=messages.source,
        family=messages.families[0] if messages.families else None,
    )


@rule("communication-repeated-in-accumulation")
def repeated(signals: Signals) -> Candidates:
    """Find reductions repeated in every micro-step; only the last one of a step is needed."""
    reductions: list[Repeated] = signals["communication.repeated"]
    if not reductions:
        return
    largest = max(reductions, key=lambda reduction: reduction.ms)
    claims = _reducing(signals, reductions, 1 - 1 / largest.micro_steps)
    yield Candidate(
        claims=claims,
        evidence=[
            Evidence("micro-steps that reduce the same sizes", largest.micro_steps, "per step"),
            Evidence(f"{largest.operation} calls of equal size", largest.count, "per step"),
            Evidence("size of one", largest.bytes / MB, "MB"),
        ],
        gain_ms=ms_of(claims) * (undisturbed(signals) if on_processor(signals) else 1.0),
        doubt=PREEMPTED_DOUBT if contended(signals) else 0.3,
        confidence=0.85,
    )


def _reducing(signals: Signals, reductions: Collection[Repeated], saved: float) -> list[Claim]:
    """Return claims of the share `saved` of the reductions' cost beside the program's own compute.

    These are exposed transfers, waits for peers before them, copies between gradients and buckets, the time
    that compute takes longer beside them, and idle time while the host calls them.
    """
    families = {family for reduction in reductions for family in reduction.families}
    share = _share(signals, families, sum(reduction.ms for reduction in reductions))
    host = on_processor(signals)
    works: list[Work] = signals.get("host.work" if host else "kernels.work").value or []
    copies = [work for work in works if any(re.match(REDUCING, op) for op in work.ops)]
    copies = [work for work in copies if work.entry in (Entry.COMPUTE, Entry.COPY, Entry.OPS)]
    if host:
        exposed = _awaited(signals, share, saved)
    else:
        exposed = [*_claims(signals, families, share * saved), *_waits(signals, families, share * saved)]
    beside = _beside(signals, {work.family for work in copies}, share * saved)
    return [*exposed, *claims_of(copies, saved), *beside, *_calling(signals, saved)]


def _beside(signals: Signals, but: Collection[str], share: float) -> list[Claim]:
    """Return claims of a share of the time that compute, `but` for some, takes longer beside collectives.

    Where other programs use up the processors, they may be why ops take longer, so nothing is claimed.
    """
    slowed: dict[str, float] = {} if contended(signals) else signals.get("communication.slowed").value or {}
    entry = Entry.OPS if on_processor(signals) else Entry.COMPUTE
    return [Claim(entry, name, share * slowed[name]) for name in sorted(set(slowed) - set(but))]


def _awaited(signals: Signals, share: float, saved: float) -> list[Claim]:
    """Return claims of the time that a thread waits for reductions of host threads."""
    waits = rows(signals, Entry.MOVING_BYTES, Entry.HOST_WAITS_FOR_PEERS)
    skew: Skew = signals.get("communication.skew").value or Skew(0.0, 0.0)
    lasting = max(skew.once_ms - (1 - saved) * skew.ms, 0.0)
    engine = part_of(rows(signals, Entry.DISPATCHING), signals.number("communication.engine", 0.0))
    ms = share * max(saved * ms_of(waits) - lasting, 0.0)
    return [*part_of(waits, ms), *part_of(engine, share * saved * ms_of(engine))]


def _calling(signals: Signals, share: float) -> list[Claim]:
    """Return claims of a share of the device's idle time while the host calls reductions."""
    idle = signals.number("communication.reducing", 0.0)
    return part_of(rows(signals, *IDLE), share * idle) if idle > 0 else []


def _waits(signals: Signals, families: Collection[str], share: float) -> list[Claim]:
    waits = [claim for claim in rows(signals, Entry.WAITING_FOR_PEERS) if claim.detail in families]
    return [Claim(claim.entry, claim.detail, share * claim.ms) for claim in waits]


@rule("communication-wide-gradients")
def wide(signals: Signals) -> Candidates:
    """Find large float32 reductions in a program that multiplies in a narrower dtype.

    Half the bytes take half the time, but casting gradients to the narrower dtype and back takes time as
    well: on fast links, which backward passes hide, more than is saved.
    """
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
    saved = HALF - _casting_ms(signals, reductions) / exposed
    if saved * exposed < EXPOSED * HALF * signals["step.timeline_ms"]:
        return
    yield Candidate(
        claims=_claims(signals, families, share * saved),
        evidence=[
            Evidence(f"exposed {described(row)}", row.exposed_ms, "ms per step") for row in reductions[:3]
        ],
        changes=_change(signals, families, 1 - saved, share),
        doubt=0.4,
        confidence=0.7,
    )


def _casting_ms(signals: Signals, reductions: Collection[Collective]) -> float:
    """Return the time to cast these gradients and back at the memory's ceiling; 0 if that is unknown."""
    rate = (signals.get("kernels.ceilings").value or {}).get("memory")
    return (
        CONVERTED * sum((row.bytes or 0) * row.count for row in reductions) / rate * MS_PER_S if rate else 0.0
    )


def _narrow(products: list[Product]) -> bool:
    """Whether most of the products' time is in bfloat16 or float16."""
    total = sum(product.work.ms for product in products)
    return total > 0 and sum(p.work.ms for p in products if p.dtype in NARROW) >= MOSTLY * total
