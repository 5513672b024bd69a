"""Synchronisations in the step, by the op that causes them."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fathom.analysis.entries import Entry
from fathom.data import load
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.rules.candidates import LATE, ms_of, rows, site
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Call, Signals

NAN_CHECK = "aten::_is_any_true"  # only the autograd engine calls it
READ = re.compile(r"evaluate_function: [^>]+ > aten::item( >|$)")


@cache
def table() -> list[dict[str, Any]]:
    """Rows of syncs.yaml."""
    return load(__package__, "syncs")


@rule(*(row["kind"] for row in table()))
def syncs(signals: Signals) -> Candidates:
    """Divide the idle time among the kinds in proportion to the time of their waiting calls."""
    calls = [call for call in signals["host.calls"] if call.cause == Entry.SYNCHRONISATION.cause]
    total = ms_of(calls)
    ops = signals.get("host.ops").value or {}
    calls = [call for call in calls if not checks_gradients(call, ops)]
    for row in table():
        mine = [call for call in calls if _fits(row, call, ops)]
        calls = [call for call in calls if call not in mine]
        if mine and total > 0:
            yield _candidate(signals, row, mine, ms_of(mine) / total)


def checks_gradients(call: Call, ops: dict[str, float]) -> bool:
    """Return whether the autograd engine reads the result of a NaN check (framework-anomaly-detection claims
    it).
    """
    return NAN_CHECK in ops and READ.search(call.path) is not None


def _fits(row: dict[str, Any], call: Call, ops: dict[str, float]) -> bool:
    if any(row.get(need) and row[need] not in ops for need in ("needs_op", "and_op")):
        return False
    fields = {"path": call.path, "api": call.api, "copies": call.copies}
    return all(re.search(row[name], value) for name, value in fields.items() if name in row)


def calls_of(calls: list[Call]) -> float:
    """Return the count of the most frequent call, because a wait often follows each blocking copy."""
    return max(summed((call.api, call.count) for call in calls).values())


def _candidate(signals: Signals, row: dict[str, Any], calls: list[Call], share: float) -> Candidate:
    return Candidate(
        kind=row["kind"],
        claims=rows(signals, Entry.SYNCHRONISATION, share=share),
        evidence=[
            Evidence(row["says"], calls_of(calls), "per step"),
            Evidence("time that the host waits in these calls", ms_of(calls), "ms per step"),
        ],
        changes=("sync=0", *row.get("without", ())),
        spill=LATE,
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'sync=0'",
        **site(calls, "source", "region"),
    )
