"""Check that the findings of a pair appear on its plain form and not on its tuned form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fathom.analysis import Examination
from fathom.analysis.folding import counters_table
from fathom.diagnosis.examine import examine
from fathom.diagnosis.profiled import NOT_OF_KERNELS, ROWS
from fathom.diagnosis.rules import rules
from fathom.recorder.dive import explanation_of, families_of
from fathom.sounding import Store

FINDING = frozenset({"finding"})
_ABOUT = "finding "  # the beginning of abstentions that concern a kind
NO_COUNTERS = "its kernels' counters were not recorded; `fathom dive` does that"
NO_RULE = "no rule checks for it"


class FormFindings(msgspec.Struct, frozen=True):
    """The findings of one form by kind.

    `shown` holds the sources that show a kind, and `clear` the sources that were checked and do not show it.
    `why` is the reason if a possible source was not checked.
    """

    shown: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    clear: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    why: Mapping[str, str] = msgspec.field(default_factory=dict)


class PairFinding(msgspec.Struct, frozen=True):
    """Whether a finding appears on each form, or None if it was not checked, for the reason `why`."""

    kind: str
    plain: bool | None
    tuned: bool | None
    why: str = ""

    @property
    def names(self) -> bool:
        """Whether the finding appears on the plain form and not on the tuned form."""
        return self.plain is True and self.tuned is False


def pair_findings(kinds: Iterable[str], plain: FormFindings, tuned: FormFindings) -> list[PairFinding]:
    """Compare the forms by kind. A source that shows a kind on one form must be checked on the other."""
    return [_compared(kind, plain, tuned) for kind in kinds]


def _compared(kind: str, plain: FormFindings, tuned: FormFindings) -> PairFinding:
    here, there = _on(kind, plain), _on(kind, tuned)
    shown = plain.shown.get(kind)
    if shown and there is None and shown <= tuned.clear.get(kind, frozenset()):
        there = False
    why = {form.why.get(kind, NO_RULE): None for form, on in ((plain, here), (tuned, there)) if on is None}
    return PairFinding(kind, here, there, "; ".join(why))


def _on(kind: str, form: FormFindings) -> bool | None:
    if form.shown.get(kind):
        return True
    return False if kind in form.clear and kind not in form.why else None


def form_findings(store: Store, named: str = "") -> FormFindings:
    """Return a recording's findings; in ncu's results, by kernels whose names start with `named`."""
    families = families_of(store)
    if not families:
        counted = bool((counters_table(store)["source"] != "static").any())
        return findings_in(examine(store), counted)
    return _profiled(store, [family for family in families if family.startswith(named)], named)


def findings_in(examination: Examination, counted: bool = False) -> FormFindings:
    """Return the findings of an examination; `counted` says whether kernel counters were recorded."""
    shown = {finding.id: FINDING for finding in examination.findings}
    why = {
        absence.what.removeprefix(_ABOUT): absence.why
        for absence in examination.abstained
        if absence.what.startswith(_ABOUT)
    }
    if not counted:
        why |= {kind: NO_COUNTERS for kind, row in ROWS.items() if row.counters and kind not in why}
    checked = {kind for rule in rules() for kind in rule.kinds} - shown.keys() - why.keys()
    return FormFindings(shown, dict.fromkeys(checked, FINDING), why)


def _profiled(store: Store, families: list[str], named: str) -> FormFindings:
    explanations = [explanation_of(store, family) for family in families]
    limiting = {fact.rule for explanation in explanations for fact in explanation.limits}
    checked = {fact.rule for explanation in explanations for fact in explanation.facts} - limiting
    shown, clear, why = {}, {}, {}
    for kind, row in ROWS.items():
        shown[kind], clear[kind] = row.rules & limiting, row.rules & checked
        if missing := row.rules - limiting - checked:
            names = ", ".join(sorted(missing))
            lacking = f"{named or 'its kernels'}: no counters for {names}"
            why[kind] = lacking if explanations else f"no kernel {named}"
    others = {kind for rule in rules() for kind in rule.kinds} - ROWS.keys()
    return FormFindings(shown, clear, why | dict.fromkeys(others, NOT_OF_KERNELS))
