"""Autograd's anomaly detection, left on in measured steps."""

from __future__ import annotations

import re

from msgspec.structs import replace

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.candidates import (
    LATE,
    claims_of,
    family_totals,
    ms_of,
    on_processor,
    rows,
    shrink,
    site,
    spent,
)
from fathom.diagnosis.rules.host.syncs import NAN_CHECK, calls_of, checks_gradients
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work

# Ops that the autograd engine itself calls after each node. A hook that looks for NaN calls aten::any.
CHECK = re.compile(rf"evaluate_function: [^>]+ > (aten::isnan|{NAN_CHECK}|aten::item)( >|$)")
WITHOUT_OPS = ('op:"aten::isnan"=0', f'op:"{NAN_CHECK}"=0')
PROFILED = 0.25  # doubt in op times measured under a profiler
UNSEEN = 0.35  # doubt: the replay has not been checked against a recording of a GPU
TRY = "torch.autograd.set_detect_anomaly(False), and time the step"


@rule("framework-anomaly-detection")
def anomalies(signals: Signals) -> Candidates:
    """Predict the step without gradient checks and, on a GPU, without the stacks that the forward pass
    stores.
    """
    count = signals["host.ops"].get(NAN_CHECK)
    if not count:
        return
    on_cpu = on_processor(signals)
    works = [work for work in signals["host.work" if on_cpu else "kernels.work"] if CHECK.search(work.path)]
    if any(NAN_CHECK in work.ops for work in works):
        yield (_on_processor if on_cpu else _on_device)(signals, works, count)


def _on_processor(signals: Signals, works: list[Work], count: float) -> Candidate:
    """Return a candidate whose gain is the ops' time in the clean step, since profiling makes ops longer."""
    candidate = _candidate(works, count)
    profiled = {(row.entry, row.detail): row.ms for row in signals["step.ledger"]}
    clean = signals.get("step.clean_ledger").value or profiled
    parts = [(claim.ms, (claim.entry, claim.detail)) for claim in candidate.claims]
    gain = sum(ms / profiled[row] * clean.get(row, 0.0) for ms, row in parts if profiled.get(row))
    return replace(candidate, gain_ms=gain, doubt=PROFILED)


def _on_device(signals: Signals, works: list[Work], count: float) -> Candidate:
    """Return a candidate for a GPU, where each check is two kernels and a copy that the host waits for."""
    share, waiting = _waits(signals, count)
    candidate, without_waits = _candidate(works, count), ("sync=0",) if share else ()
    return replace(
        candidate,
        claims=[*candidate.claims, *rows(signals, Entry.SYNCHRONISATION, share=share)],
        evidence=[
            *candidate.evidence,
            Evidence("time that the host waits for their results", waiting, "ms per step"),
            *_stacks(signals),
        ],
        changes=(
            *without_waits,
            *unchecked(signals),
            *shrink(works, family_totals(signals["kernels.work"]), 0.0),
        ),
        spill=LATE,
        part=share or 1.0,
        doubt=UNSEEN,
    )


def unchecked(signals: Signals) -> tuple[str, ...]:
    """Return the changes of host time without anomaly detection; empty where it is off."""
    if not (signals.get("host.ops").value or {}).get(NAN_CHECK):
        return ()
    stored, before = _stored(signals), spent(signals, Entry.DISPATCHING)
    left = max(1 - stored / before, 0.0) if before else 1.0
    return (*WITHOUT_OPS, f"dispatching={left:.3f}") if stored else WITHOUT_OPS


def _stored(signals: Signals) -> float:
    """Return the milliseconds per step in which the forward pass stores stacks; 0 if unknown."""
    return signals.number("host.stored_stacks", 0.0)


def _stacks(signals: Signals) -> list[Evidence]:
    stored = _stored(signals)
    says = "time that the host stores stacks of the forward pass"
    return [Evidence(says, stored, "ms per step")] if stored else []


def _waits(signals: Signals, count: float) -> tuple[float, float]:
    """Return the share of waits caused by the checks, and their milliseconds.

    The program's own hooks may read values in the same place, so at most one wait counts for each check.
    """
    calls = [call for call in signals["host.calls"] if call.cause == Entry.SYNCHRONISATION.cause]
    mine = [call for call in calls if checks_gradients(call, signals["host.ops"])]
    if not mine:
        return 0.0, 0.0
    waiting = ms_of(mine) * min(count / calls_of(mine), 1.0)
    return waiting / ms_of(calls), waiting


def _candidate(works: list[Work], count: float) -> Candidate:
    return Candidate(
        claims=claims_of(works),
        evidence=[
            Evidence("gradients checked for NaN by the autograd engine", count, "per step"),
            Evidence("time computing these checks", ms_of(works), "ms per step"),
        ],
        check=TRY,
        **site(works, "source", "region"),
    )
