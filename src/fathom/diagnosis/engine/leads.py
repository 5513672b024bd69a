"""Find kernel families that are far from their ceiling for no identified cause."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from fathom.analysis.entries import Entry
from fathom.analysis.replay import Gain
from fathom.analysis.results import Finding, Lead, LedgerRow, Where
from fathom.data import load
from fathom.diagnosis.engine.predict import gain_of
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.signals import Signals, Work
from fathom.machine import DATASHEET, MEASURED

AIM = {MEASURED: 0.8, DATASHEET: 0.6}  # of the ceiling: good kernels reach it
MOST = 5  # each is replayed, which takes a tenth of a second or more
LEAST = 0.01  # of the step: smaller savings are not listed
EMPTY_MS = 2e-3  # about the duration of an empty kernel


def leads(signals: Signals, findings: Iterable[Finding]) -> list[Lead]:
    """Return at most MOST kernel families, sorted by the time saved if they ran at AIM of their ceiling.

    Time claimed by `findings` is excluded. Empty if the ceilings, the step or the launches are unknown.
    """
    step_ms = signals.get("step.headline_ms").value or signals.get("step.ms").value
    if not step_ms:
        return []
    claims = (claim for finding in findings for claim in finding.claims)
    claimed = summed((claim.detail, claim.ms) for claim in claims if claim.entry == Entry.COMPUTE)
    rows: list[LedgerRow] = signals.get("step.ledger").value or []
    rows = [row for row in rows if row.entry == Entry.COMPUTE and row.at_ceiling_ms and row.detail]
    source = signals.get("step.ceilings").value or MEASURED
    beyond = [(_beyond(row, claimed.get(row.detail, 0.0), AIM[source]), row) for row in rows]
    worth = [(ms, row) for ms, row in beyond if ms >= LEAST * step_ms]
    largest = sorted(worth, key=lambda pair: (-pair[0], pair[1].detail))[:MOST]
    known = [_lead(signals, row, ms, step_ms, source) for ms, row in largest]
    leads = [lead for lead in known if lead is not None and lead.gain_share >= LEAST]
    return sorted(leads, key=lambda lead: -lead.gain_ms)


def _beyond(row: LedgerRow, claimed: float, aim: float) -> float:
    """Return the time beyond `aim` of the ceiling, except for launches that are too short to gain."""
    left = max(row.ms - claimed, 0.0)
    wanted = max((row.at_ceiling_ms or 0.0) / aim, (row.count or 0.0) * EMPTY_MS)
    return max(left - wanted * left / row.ms, 0.0) if row.ms > 0 else 0.0


def _lead(signals: Signals, row: LedgerRow, beyond: float, step_ms: float, source: str) -> Lead | None:
    change = f"family:{row.detail}={1.0 - beyond / row.ms:.6f}"
    gain = gain_of(signals, (change,))
    if not isinstance(gain, Gain):
        return None
    mine = [w for w in signals.get("kernels.work").value or [] if w.family == row.detail]
    most = min(beyond / gain.ms, 1.0) if gain.ms > 0 else 1.0
    op = _mostly([(_op(work), work.ms) for work in mine]) or ""
    hint = _hint(op, row.detail)
    return Lead(
        where=_where(signals, row, mine),
        op=op,
        ms=row.ms,
        share=row.ms / step_ms,
        at_ceiling_ms=row.at_ceiling_ms or 0.0,
        of_ceiling=(row.at_ceiling_ms or 0.0) / row.ms,
        bound=row.bound,
        aim=AIM[source],
        ceiling=source,
        change=change,
        gain_ms=gain.ms * most,
        low_ms=max(gain.low, 0.0) * most,
        high_ms=gain.high * most,
        gain_share=gain.ms * most / step_ms,
        hint=hint.advice,
        technique=hint.technique,
    )


class Hint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of leads.yaml, which explains the fields."""

    advice: str = msgspec.field(name="try", default="")
    op: str = ""
    family: str = ""
    technique: str | None = None


HINTS = msgspec.convert(load(__package__, "leads"), list[Hint])


def _hint(op: str, family: str) -> Hint:
    fits = (hint for hint in HINTS if re.search(hint.op, op) and re.search(hint.family, family))
    return next(fits, Hint())


def _where(signals: Signals, row: LedgerRow, mine: list[Work]) -> Where:
    marks = ("module", "region", "source")
    marks_of = {what: _mostly([(getattr(work, what), work.ms) for work in mine]) for what in marks}
    rank, device = signals.get("step.rank").value, signals.get("step.device").value
    return Where(rank=rank, device=device, family=row.detail, **marks_of)


def _mostly(weights: list[tuple[str | None, float]]) -> str | None:
    """Return the name that accounts for more than half of the time; None if there is none."""
    half = 0.5 * sum(ms for _, ms in weights)
    return next((name for name, ms in summed(weights).items() if ms > half), None)


def _op(work: Work) -> str | None:
    """Return the outermost op outside the autograd engine, and the op that launches the kernel."""
    names = [name for name in work.ops if not name.startswith("autograd::engine")]
    return " > ".join(dict.fromkeys([names[0], names[-1]])) if names else None
