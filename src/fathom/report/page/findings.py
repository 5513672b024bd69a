"""Findings as cards, and kernels with headroom."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.analysis.results import Finding, Lead, LedgerRow
from fathom.report import findings, leads, units
from fathom.report.heading import basis
from fathom.report.ledger import name
from fathom.report.page.recording import Recording, Section


def section(recording: Recording) -> Section:
    """Return the cards, or the sentence that nothing was found."""
    result = recording.examination
    return Section(
        "findings",
        "Findings",
        {
            "cards": [_card(finding, basis(result.step), recording.noun) for finding in result.findings],
            "none": findings.none(result),
            "alone": findings.not_added(result.findings),
            "leads": [_lead(lead) for lead in result.leads],
            "follows": leads.follows(result.leads).capitalize() if result.leads else "",
        },
    )


def _card(finding: Finding, of: str, noun: str) -> dict[str, object]:
    """Return the facts of a card; the interval's bar is relative to its upper end."""
    gain, low, high = finding.gain_ms, finding.low_ms, finding.high_ms
    scale = {}
    if gain is not None and low is not None and high and high > 0:
        scale = {"low": 100 * max(low, 0) / high, "gain": 100 * max(gain, 0) / high}
    return {
        "id": finding.id,
        "title": finding.title,
        "gain": findings.gain_of(finding),
        "money": units.a_day(finding.saves_per_day),
        "interval": scale,
        "sure": findings.sure(finding, of),
        "why_none": finding.unpredicted,
        "place": findings.place(finding),
        "evidence": [findings.shown(line, noun=noun) for line in finding.evidence],
        "claims": _claims(finding, of),
        "mechanism": finding.mechanism,
        "remedy": finding.remedy.rstrip(),
        "check": finding.check,
        "technique": f"fathom lab run {finding.technique}" if finding.technique else "",
        "references": [link for link in finding.references if link.startswith(("https://", "http://"))],
    }


def _claims(finding: Finding, of: str) -> list[str]:
    """Return the largest entries that the finding claims, and why the gain may be far smaller."""
    lines = findings.claims(finding, of)
    return [*lines, findings.HOST] if findings.limited(finding) else lines


def _lead(lead: Lead) -> dict[str, str]:
    family = lead.where.family or ""
    return {
        "name": name(LedgerRow(Entry.COMPUTE, family, lead.ms)),
        "full": family,
        "gain": units.within(lead.gain_ms, lead.low_ms, lead.high_ms),
        "reaches": f"{100 * lead.of_ceiling:.0f} % of {lead.bound}",
        "op": lead.op,
        "hint": lead.hint,
    }
