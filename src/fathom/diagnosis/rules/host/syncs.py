"""Synchronisations in the step, by the op that causes them."""

from __future__ import annotations

import re

import msgspec

from fathom.analysis.entries import Entry
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.kinds import declared
from fathom.diagnosis.rules.candidates import LATE, ms_of, rows, site
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Call, Signals

NAN_CHECK = "aten::_is_any_true"  # only the autograd engine calls it
READ = re.compile(r"evaluate_function: [^>]+ > aten::item( >|$)")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls that make the host wait, by the op that makes them: the first row that fits claims the call.

    `path`: pattern over the op names from the outermost; `api`: of the call; `copies`: direction of the op's
    copy; `needs`: ops that the recording must have; `without`: changes of a replay that go with the wait once
    it is fixed; `says`: the evidence, before the calls per step.
    """

    says: str
    path: str = ""
    api: str = ""
    copies: str = ""
    needs: frozenset[str] = frozenset()
    without: tuple[str, ...] = ()


ROWS = msgspec.convert(declared("syncs"), dict[str, Row])


@rule(*ROWS)
def syncs(signals: Signals) -> Candidates:
    """Divide the idle time among the kinds in proportion to the time of their waiting calls."""
    calls = [call for call in signals["host.calls"] if call.cause == Entry.SYNCHRONISATION.cause]
    total = ms_of(calls)
    ops = signals.get("host.ops").value or {}
    calls = [call for call in calls if not checks_gradients(call, ops)]
    for kind, row in ROWS.items():
        mine = [call for call in calls if _fits(row, call, ops)]
        calls = [call for call in calls if call not in mine]
        if mine and total > 0:
            yield _candidate(signals, kind, mine, ms_of(mine) / total)


def checks_gradients(call: Call, ops: dict[str, float]) -> bool:
    """Return whether autograd reads the result of a NaN check (a case of framework-anomaly-detection)."""
    return NAN_CHECK in ops and READ.search(call.path) is not None


def _fits(row: Row, call: Call, ops: dict[str, float]) -> bool:
    fields = ((row.path, call.path), (row.api, call.api), (row.copies, call.copies))
    return row.needs <= ops.keys() and all(re.search(pattern, text) for pattern, text in fields)


def calls_of(calls: list[Call]) -> float:
    """Return the count of the most frequent call, because a wait often follows each blocking copy."""
    return max(summed((call.api, call.count) for call in calls).values())


def _candidate(signals: Signals, kind: str, calls: list[Call], share: float) -> Candidate:
    row = ROWS[kind]
    return Candidate(
        kind=kind,
        claims=rows(signals, Entry.SYNCHRONISATION, share=share),
        evidence=[
            Evidence(row.says, calls_of(calls), "per step"),
            Evidence("time that the host waits in these calls", ms_of(calls), "ms per step"),
        ],
        changes=("sync=0", *row.without),
        spill=LATE,
        part=share,
        doubt=0.25,
        check="fathom what-if SOUNDING 'sync=0'",
        **site(calls, "source", "region"),
    )
