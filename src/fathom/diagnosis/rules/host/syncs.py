"""Synchronisations in the step, by the op that causes them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fathom.analysis.entries import Entry
from fathom.data import load
from fathom.diagnosis.rules.host.rarely import LATE
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rows, rule, site
from fathom.diagnosis.signals import Call, Signals

CAUSE, ENTRY = Entry.SYNCHRONISATION.cause, Entry.SYNCHRONISATION
CHANGE = "sync=0"
CHECK = "fathom what-if SOUNDING 'sync=0'"
NAN_CHECK = "aten::_is_any_true"  # only the autograd engine calls it
READ = re.compile(r"evaluate_function: [^>]+ > aten::item( >|$)")


@cache
def table() -> list[dict[str, Any]]:
    """Rows of syncs.yaml."""
    return load(__package__, "syncs")


@rule(*(row["kind"] for row in table()))
def syncs(signals: Signals) -> Candidates:
    """Divide the idle time among the kinds in proportion to the time of their waiting calls."""
    calls = [call for call in signals["host.calls"] if call.cause == CAUSE]
    total = sum(call.ms for call in calls)
    ops = signals.get("host.ops").value or {}
    calls = [call for call in calls if not checks_gradients(call, ops)]
    for row in table():
        mine = [call for call in calls if _fits(row, call, ops)]
        calls = [call for call in calls if call not in mine]
        if mine and total > 0:
            yield _candidate(signals, row, mine, sum(call.ms for call in mine) / total)


def checks_gradients(call: Call, ops: dict[str, float]) -> bool:
    """Whether the autograd engine reads the result of a NaN check (framework-anomaly-detection claims it)."""
    return NAN_CHECK in ops and READ.search(call.path) is not None


def _fits(row: dict[str, Any], call: Call, ops: dict[str, float]) -> bool:
    if any(row.get(need) and row[need] not in ops for need in ("needs_op", "and_op")):
        return False
    fields = {"path": call.path, "api": call.api, "copies": call.copies}
    return all(re.search(row[name], value) for name, value in fields.items() if name in row)


def calls_of(calls: list[Call]) -> float:
    """Count of the most frequent call: a blocking copy is often followed by a call that waits for it."""
    by_api: dict[str, float] = {}
    for call in calls:
        by_api[call.api] = by_api.get(call.api, 0.0) + call.count
    return max(by_api.values())


def _candidate(signals: Signals, row: dict[str, Any], calls: list[Call], share: float) -> Candidate:
    count, ms = calls_of(calls), sum(call.ms for call in calls)
    return Candidate(
        kind=row["kind"],
        claims=[Claim(row.entry, row.detail, share * row.ms) for row in rows(signals, ENTRY)],
        evidence=[
            Evidence(row["says"], count, "per step"),
            Evidence("host waiting in these calls", ms, "ms per step"),
        ],
        changes=(CHANGE, *row.get("without", ())),
        spill=LATE,
        part=share,
        doubt=0.25,
        check=CHECK,
        **site(calls, "source", "region"),
    )
