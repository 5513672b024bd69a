"""Generation of tokens without a KV cache: each pass computes all earlier tokens again."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from fathom.analysis.entries import DEVICE_WORK, Entry
from fathom.diagnosis.rules.candidates import (
    LAUNCHING,
    mended,
    ms_of,
    on_processor,
    rates_of,
    rows,
    site,
    spent,
)
from fathom.diagnosis.rules.host.launch_bound import preparations
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Prefix, Signals, Work
from fathom.units import MS_PER_S, US_PER_MS

REACHED = 0.6  # of memory's bandwidth, by products that read each weight for one token
CALL_MS = 2.0 / US_PER_MS  # of an op or kernel that has hardly anything to do
DOUBT = 0.1
BYTES = {"float": 4, "double": 8}  # others: half precision
ATTENTION = "attention"
NEW_SHAPES = ("allocator=0",)
HOST_BOUND = 0.5  # of the step, in which the device waits
KEYS = slice(1, 3)  # arguments of attention: keys and values stay
CHECK = "model.generate(..., use_cache=True), and time a token"


@rule("kernels-no-kv-cache")
def uncached_generation(signals: Signals) -> Candidates:
    """Report passes over a growing sequence: with a cache, each reads the weights for one token only.

    The first pass of a step computes the prompt in either form.
    """
    prefixes: list[Prefix] = signals["generation.prefix"]
    for prefix in prefixes:
        rate = _rate(signals)
        parts = [(work, _left(work, prefix, rate)) for work in prefix.works]
        shorter = sorted(((work, left) for work, left in parts if left < 1), key=lambda part: -part[0].ms)
        if shorter:
            yield _candidate(signals, prefix, shorter)


def _candidate(signals: Signals, prefix: Prefix, shorter: list[tuple[Work, float]]) -> Candidate:
    each_length = not prefix.within and not on_processor(signals)
    build = _of_new_shapes if each_length else _of_families
    return build(signals, prefix, shorter)


def _of_families(signals: Signals, prefix: Prefix, shorter: list[tuple[Work, float]]) -> Candidate:
    candidate = mended(
        signals,
        *(([work], left) for work, left in shorter),
        evidence=_evidence(prefix, ms_of(work for work, _ in shorter)),
        doubt=DOUBT,
        confidence=0.85,
        check=CHECK,
    )
    between = not prefix.within and candidate.gain_ms is not None
    return _of_longer_steps(signals, candidate) if between else candidate


def _of_new_shapes(signals: Signals, prefix: Prefix, shorter: list[tuple[Work, float]]) -> Candidate:
    """Return the candidate on a GPU, where each length launches other kernels.

    With a cache, the shapes of all ops but attention stay the same: no kernel is chosen or memory allocated
    for a new one. If the device mostly waits for the host, the pass is named although it may cost no time.
    """
    saved = sum((1 - left) * work.ms for work, left in shorter)
    busy = spent(signals, Entry.COMPUTE)
    part = min(saved / busy, 1.0) if busy else 0.0
    prepared = preparations(signals)
    attention, others = ([p for p in prepared if (ATTENTION in p.op) == kind] for kind in (True, False))
    working = spent(signals, *DEVICE_WORK, Entry.WAITING_FOR_PEERS)
    waiting = 1 - working / signals["step.timeline_ms"]
    waits = Evidence("device waits for the host", 100 * waiting, "% of the profiled step")
    grown = ms_of(work for work, _ in shorter)
    return Candidate(
        claims=rows(signals, Entry.COMPUTE, share=part),
        evidence=[*_evidence(prefix, grown), *([waits] if waiting > HOST_BOUND else [])],
        changes=(f"all-kernels={1 - part:.6f}", *NEW_SHAPES, *(p.without for p in others)),
        given=tuple(p.without for p in attention),
        spill=LAUNCHING,
        doubt=DOUBT,
        confidence=0.85,
        check=CHECK,
        costless=waiting > HOST_BOUND,
        **site([work for work, _ in shorter], "source", "module"),
    )


def _of_longer_steps(signals: Signals, candidate: Candidate) -> Candidate:
    """Return the candidate with its share of the mean step, which is longer because its sequence is."""
    share = ms_of(candidate.claims) / signals["step.timeline_ms"]
    gain = share * signals.number("step.mean_ms", signals["step.timeline_ms"])
    return replace(candidate, gain_ms=gain, spill=(Entry.UNATTRIBUTED,))


def _evidence(prefix: Prefix, ms: float) -> list[Evidence]:
    passes = len(prefix.lengths)
    length = sum(prefix.lengths) / passes
    each = "pass" if prefix.within else "step"
    return [
        Evidence(f"tokens that a pass computes, one more in each {each}", length, "tokens"),
        Evidence("tokens that a pass computes with a KV cache", 1.0, "tokens"),
        Evidence("time of ops whose size grows with the sequence", ms, "ms per step"),
    ]


def _rate(signals: Signals) -> float:
    """Return bytes per second of reading weights: of the ceiling, or of the op that moves data fastest."""
    if memory := rates_of(signals).get("memory"):
        return REACHED * memory
    moved = [MS_PER_S * row.bytes / row.ms for row in signals["step.ledger"] if row.bytes and row.ms > 0]
    return max(moved, default=float("inf"))


def _left(work: Work, prefix: Prefix, rate: float) -> float:
    """Return the share of the work's time that a pass over one token takes."""
    grown = {size for shape in work.sizes for size in shape if size in prefix.grown}
    if not grown or work.ms <= 0 or (prefix.within and _is_prompt(grown, prefix)):
        return 1.0
    kept = [shape for shape in work.sizes if shape and not prefix.grown & set(shape)]
    if ATTENTION in work.op:
        kept += work.sizes[KEYS]
    width = BYTES.get(work.types[0] if work.types else "float", 2)
    ms = work.count * (MS_PER_S * width * sum(map(prod, kept)) / rate + CALL_MS)
    return min(max(1 / max(prefix.lengths), ms / work.ms), 1.0)


def _is_prompt(grown: set[int], prefix: Prefix) -> bool:
    first = min(prefix.lengths)
    return grown <= {first, first * prefix.samples}
