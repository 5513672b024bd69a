"""Autograd's anomaly detection, left on in measured steps."""

from __future__ import annotations

import re

from msgspec.structs import replace

from fathom.analysis import CPU
from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.rarely import LATE
from fathom.diagnosis.rules.host.syncs import NAN_CHECK, calls_of, checks_gradients
from fathom.diagnosis.rules.rule import (
    Candidate,
    Claim,
    Evidence,
    Found,
    claims_of,
    family_totals,
    rows,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work

KIND = "framework-anomaly-detection"
# What the autograd engine itself calls behind each node. A hook that looks for NaN calls aten::any.
CHECK = re.compile(rf"evaluate_function: [^>]+ > (aten::isnan|{NAN_CHECK}|aten::item)( >|$)")
WITHOUT_OPS = ('op:"aten::isnan"=0', f'op:"{NAN_CHECK}"=0')
PROFILED = 0.25  # doubt in times of ops under a profiler
UNSEEN = 0.35  # no recording of a GPU has shown yet how far the replay is right
TRY = "torch.autograd.set_detect_anomaly(False), and time the step"


@rule(KIND)
def anomalies(signals: Signals) -> Found:
    """The checks of gradients are left out. Stacks that are stored in the forward pass are not counted."""
    count = signals["host.ops"].get(NAN_CHECK)
    if not count:
        return
    on_processor = signals.get("step.device").value == CPU
    works = signals["host.work" if on_processor else "kernels.work"]
    mine = [work for work in works if CHECK.search(work.path)]
    if any(NAN_CHECK in work.ops for work in mine):
        yield _on_processor(signals, mine, count) if on_processor else _on_device(signals, mine, count)


def _on_processor(signals: Signals, works: list[Work], count: float) -> Candidate:
    """A profiler makes ops longer: what the clean step holds of them is gained."""
    found = _candidate(works, count)
    profiled = {(row.entry, row.detail): row.ms for row in signals["step.ledger"]}
    clean = signals.get("step.clean_ledger").value or profiled
    parts = [(claim.ms, (claim.entry, claim.detail)) for claim in found.claims]
    gain = sum(ms / profiled[row] * clean.get(row, 0.0) for ms, row in parts if profiled.get(row))
    return replace(found, gain_ms=gain, doubt=PROFILED)


def _on_device(signals: Signals, works: list[Work], count: float) -> Candidate:
    """Each check is two kernels and a copy that the host waits for."""
    share, waiting = _waits(signals, count)
    found, without_waits = _candidate(works, count), ("sync=0",) if share else ()
    return replace(
        found,
        claims=[
            *found.claims,
            *(Claim(row.entry, row.detail, share * row.ms) for row in rows(signals, Entry.SYNCHRONISATION)),
        ],
        evidence=[*found.evidence, Evidence("the host waits for their results", waiting, "ms a step")],
        changes=(*without_waits, *WITHOUT_OPS, *shrink(works, family_totals(signals["kernels.work"]), 0.0)),
        spill=LATE,
        part=share or 1.0,
        doubt=UNSEEN,
    )


def _waits(signals: Signals, count: float) -> tuple[float, float]:
    """The share of the waits that are for checks, and their milliseconds.

    A hook of the program may read values in the same place, so no more waits count than there are checks.
    """
    calls = [call for call in signals["host.calls"] if call.cause == Entry.SYNCHRONISATION.cause]
    mine = [call for call in calls if checks_gradients(call, signals["host.ops"])]
    if not mine:
        return 0.0, 0.0
    waiting = sum(call.ms for call in mine) * min(count / calls_of(mine), 1.0)
    return waiting / sum(call.ms for call in calls), waiting


def _candidate(works: list[Work], count: float) -> Candidate:
    ms = sum(work.ms for work in works)
    return Candidate(
        kind=KIND,
        claims=claims_of(works),
        evidence=[
            Evidence("gradients that the autograd engine checks for NaN", count, "a step"),
            Evidence("computing these checks", ms, "ms a step"),
        ],
        check=TRY,
        **site(works, "source", "region"),
    )
