"""Loops of the program that call operations on one element or slice of a tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import (
    LAUNCHING,
    in_mean_step,
    ms_of,
    on_processor,
    part_of,
    rows,
    saving,
)
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Loop, Signals
from fathom.units import US_PER_MS

# Saved of a loop by mended forms of four loops, on one core of an EPYC: GAE with its terms computed for
# all steps at once 73 %, in NumPy 96, as a scan 99; an average by unbind 69, by a product 99; one call of
# cross_entropy 99; torch.compile on a simulation of springs 95.
SAVED, DOUBT = 0.85, 0.18
MUCH_WORK = 3.0  # times as long as taking an element: the ops compute for most of their time
LARGE = 16_384  # elements: an op on more takes longer than its call
LONG_US = 5.0  # kernels that take longer compute
LITTLE = 0.02  # of the step


@rule("host-element-loop")
def element_loops(signals: Signals) -> Candidates:
    """Find loops whose ops hardly compute, so that their calls take the time."""
    candidate = _on_processor if on_processor(signals) else _on_device
    return [candidate(signals, loop) for loop in costly_loops(signals)]


def costly_loops(signals: Signals) -> list[Loop]:
    """Return the loops that make a finding; empty if they are unknown."""
    every: list[Loop] = signals.get("host.loops").value or []
    least = LITTLE * signals["step.timeline_ms"]
    return [loop for loop in every if loop.ms >= least and _tiny(signals, loop)]


def _tiny(signals: Signals, loop: Loop) -> bool:
    """Return whether the calls of ops take the time, and not their work."""
    if (loop.largest or 0) > LARGE:
        return False
    if on_processor(signals):
        return loop.typical is not None and loop.typical <= MUCH_WORK
    return loop.launches > 0 and US_PER_MS * sum(loop.kernels.values()) <= LONG_US * loop.launches


def _on_processor(signals: Signals, loop: Loop) -> Candidate:
    ledger = [row for row in signals["step.ledger"] if row.entry == Entry.OPS]
    ops = [Claim(row.entry, row.detail, loop.own.get(row.detail, 0.0) * row.ms) for row in ledger]
    return Candidate(
        claims=[*ops, *part_of(rows(signals, Entry.PYTHON), max(loop.ms - ms_of(ops), 0.0))],
        evidence=list(_evidence(loop)),
        gain_ms=SAVED * in_mean_step(signals, loop.ms),
        doubt=DOUBT,
        confidence=0.85,
        check="count the calls of ops per step after the change, in the ledger's column `runs`",
        source=loop.source,
    )


def _on_device(signals: Signals, loop: Loop) -> Candidate:
    """Shorten the loop's kernels, its share of the calls of each op, and of the Python between launches."""
    python = min(loop.launches / signals["kernels.count"], 1.0)
    ops = (f"op:{name}={1 - SAVED * share:.6f}" for name, share in loop.own.items())
    return saving(
        {family: SAVED * ms for family, ms in loop.kernels.items()},
        signals,
        changes=(*ops, f"python={1 - SAVED * python:.6f}"),
        spill=LAUNCHING,
        evidence=list(_evidence(loop)),
        doubt=DOUBT,
        confidence=0.75,
        check="count the launches per step after the change",
        source=loop.source,
    )


def _evidence(loop: Loop) -> Iterator[Evidence]:
    yield Evidence("iterations over elements or slices of tensors", loop.iterations, "per step")
    yield Evidence("calls of ops in them", loop.count, "per step")
    if loop.largest:
        yield Evidence("elements that such an op usually reads", float(loop.largest), "elements")
    if loop.typical is not None:
        yield Evidence("time of an op that computes, over that of taking an element", loop.typical, "times")
    yield Evidence("time of the loop, with the Python between its ops", loop.ms, "ms per step")
    if loop.backward_ms:
        yield Evidence("part of it in the backward pass", loop.backward_ms, "ms per step")
