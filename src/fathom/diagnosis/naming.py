"""Whether the findings that name a pair appear on its plain form, and not on its tuned one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fathom.analysis import Examination
from fathom.analysis.folding import counters_table
from fathom.diagnosis.examine import examine
from fathom.diagnosis.profiled import NOT_OF_KERNELS, table
from fathom.diagnosis.rules import rules
from fathom.recorder.dive import explanation_of, families_of
from fathom.sounding import Store

FINDING = frozenset({"finding"})
_ABOUT = "finding "  # prefix of abstentions about a kind
NO_COUNTERS = "its kernels' counters were not recorded; `fathom dive` does that"
NO_RULE = "no rule looks for it"


class Seen(msgspec.Struct, frozen=True):
    """The analyses of a form, by kind: `shown`, those that show it; `clear`, those that do not; `why`,
    the reason if an analysis that might show it did not run."""

    shown: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    clear: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    why: Mapping[str, str] = msgspec.field(default_factory=dict)


class Told(msgspec.Struct, frozen=True):
    """Whether a finding appears on each form; None if it was not analysed, for the reason `why`."""

    kind: str
    plain: bool | None
    tuned: bool | None
    why: str = ""

    @property
    def names(self) -> bool:
        """Whether it names the pair: it is on the plain form, and not on the tuned one."""
        return self.plain is True and self.tuned is False


def told(kinds: Iterable[str], plain: Seen, tuned: Seen) -> list[Told]:
    """One result per kind. The analysis that shows it on the plain form must also run on the tuned one."""
    return [_told(kind, plain, tuned) for kind in kinds]


def _told(kind: str, plain: Seen, tuned: Seen) -> Told:
    here, there = _on(kind, plain), _on(kind, tuned)
    shown = plain.shown.get(kind)
    if shown and there is None and shown <= tuned.clear.get(kind, frozenset()):
        there = False
    why = {form.why.get(kind, NO_RULE): None for form, on in ((plain, here), (tuned, there)) if on is None}
    return Told(kind, here, there, "; ".join(why))


def _on(kind: str, form: Seen) -> bool | None:
    if form.shown.get(kind):
        return True
    return False if kind in form.clear and kind not in form.why else None


def seen(store: Store, named: str = "") -> Seen:
    """The kinds that a recording shows by its findings, or a result of ncu by the counters of the kernels
    whose names begin with `named`."""
    families = families_of(store)
    if not families:
        counted = bool((counters_table(store)["source"] != "static").any())
        return seen_in(examine(store), counted)
    return _profiled(store, [family for family in families if family.startswith(named)], named)


def seen_in(examination: Examination, counted: bool = False) -> Seen:
    """The kinds that an examination shows. `counted`: whether kernel counters were recorded with it."""
    shown = {finding.id: FINDING for finding in examination.findings}
    why = {
        abstained.what.removeprefix(_ABOUT): abstained.why
        for abstained in examination.abstained
        if _about_kind(abstained.what)
    }
    if not counted:
        why |= {kind: NO_COUNTERS for kind, row in table().items() if row.get("counters") and kind not in why}
    looked = {kind for rule in rules() for kind in rule.kinds} - shown.keys() - why.keys()
    return Seen(shown, dict.fromkeys(looked, FINDING), why)


def _about_kind(what: str) -> bool:
    return what.startswith(_ABOUT)


def _profiled(store: Store, families: list[str], named: str) -> Seen:
    explanations = [explanation_of(store, family) for family in families]
    holding = {fact.rule for explanation in explanations for fact in explanation.limits}
    looked = {fact.rule for explanation in explanations for fact in explanation.facts} - holding
    shown, clear, why = {}, {}, {}
    for kind, row in table().items():
        asked = frozenset(row["dive"])
        shown[kind], clear[kind] = asked & holding, asked & looked
        if missing := asked - holding - looked:
            names = ", ".join(sorted(missing))
            why[kind] = (
                f"{named or 'its kernels'}: no counters for {names}" if explanations else f"no kernel {named}"
            )
    others = {kind for rule in rules() for kind in rule.kinds} - table().keys()
    return Seen(shown, clear, why | dict.fromkeys(others, NOT_OF_KERNELS))
