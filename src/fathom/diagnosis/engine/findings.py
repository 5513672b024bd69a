"""From signals to findings: every rule looks, gains are predicted, claims are made disjoint."""

from __future__ import annotations

from collections.abc import Iterable

from fathom.analysis import Abstained
from fathom.analysis.results import Finding, Where
from fathom.diagnosis.engine.claims import Sized, disjoint, in_clean, order
from fathom.diagnosis.engine.observe import observed
from fathom.diagnosis.engine.predict import gain_of, predict
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.rules import Candidate, Rule, Unlooked, needs, rules
from fathom.diagnosis.signals import Signals, UnknownSignalError

LEAST = 0.01  # of the step: what saves less is no finding


def findings(signals: Signals, chosen: Iterable[Rule] | None = None) -> tuple[list[Finding], list[Abstained]]:
    """Findings, those that save most first, and what rules could not look at."""
    step_ms = signals.get("step.mean_ms").value or signals.get("step.ms").value
    candidates, abstained = _looked(signals, rules() if chosen is None else chosen)
    if not step_ms:
        told = [one for one in candidates if one.costless]
        return [_finding(signals, Sized(one, None), None) for one in told], abstained
    ledger = {(r.entry, r.detail): r.ms for r in signals.get("step.ledger").value or []}
    least = LEAST * step_ms
    worth = [one for one in candidates if one.costless or _most(one, ledger) >= least]
    idle_ms = signals.get("step.idle_ms").value
    sized, refused = predict(worth, lambda changes: gain_of(signals, changes), step_ms, idle_ms)
    sure = [one for one in sized if _sure(one, least, step_ms)]
    kept = disjoint(observed(sure, signals.get("step.trials").value or {}), ledger, least)
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or ledger
    headline = signals.get("step.headline_ms").value or step_ms
    settled = sorted((in_clean(one, ledger, clean, headline) for one in kept), key=order)
    return [_finding(signals, one, headline) for one in settled], [*abstained, *refused]


def _sure(one: Sized, least: float, step_ms: float) -> bool:
    """What shows beyond other causes is the difference of two predictions: it has to exceed its doubt.

    So has a gain whose remedy costs something itself, as its rule says.
    """
    wanted = max(least if one.candidate.given else 0.0, one.candidate.least * step_ms)
    return not wanted or one.low is None or one.low >= wanted


def _looked(signals: Signals, chosen: Iterable[Rule]) -> tuple[list[Candidate], list[Abstained]]:
    """What every rule yields; it abstains from kinds that it does not show where it lacks something."""
    found: list[Candidate] = []
    abstained: list[Abstained] = []
    for rule in chosen:
        mine: list[Candidate] = []
        why: dict[str, str] = {}
        try:
            for one in rule.look(signals):
                if isinstance(one, Unlooked):
                    why[one.kind] = one.why
                else:
                    mine.append(one)
        except UnknownSignalError as unknown:
            why = dict.fromkeys(rule.kinds, str(unknown))
        except Exception as error:
            why = dict.fromkeys(rule.kinds, f"its rule failed: {type(error).__name__}: {error}")
        shown = {one.kind for one in mine}
        found += mine
        for kind in rule.kinds:
            if kind not in shown and (text := why.get(kind) or _lacking(signals, kind)):
                abstained.append(Abstained(f"finding {kind}", text))
    return found, abstained


def _lacking(signals: Signals, kind: str) -> str:
    """Why a signal without which its rule may miss the kind is not known; empty where all are."""
    needed = (signals.get(name) for name in needs().get(kind, ()))
    return next((one.why for one in needed if one.value is None), "")


def _most(one: Candidate, ledger: dict[tuple[str, str], float]) -> float:
    """More than this cannot be gained."""
    spilled = sum(ms for (entry, _), ms in ledger.items() if entry in one.spill)
    return max(sum(claim.ms for claim in one.claims) + spilled, one.gain_ms or 0.0)


def _line(signals: Signals, found: Candidate) -> str | None:
    """The line that ran, where the rule knows only the function that launched what it claims."""
    launched = [
        one for one in signals.get("kernels.work").value or [] if one.ran and one.source == found.source
    ]
    families = {claim.detail for claim in found.claims}
    claimed = [one for one in launched if one.family in families] or launched
    return max(claimed, key=lambda one: one.ms).ran if found.source and claimed else found.source


def _finding(signals: Signals, one: Sized, step_ms: float | None) -> Finding:
    kind, found = kinds()[one.candidate.kind], one.candidate
    step_ms = one.step_ms or step_ms
    return Finding(
        id=kind.id,
        title=kind.title,
        where=Where(
            signals.get("step.rank").value,
            signals.get("step.device").value,
            found.module,
            found.region,
            _line(signals, found),
            found.family,
        ),
        evidence=list(found.evidence),
        claims=list(found.claims),
        gain_ms=one.ms,
        low_ms=one.low,
        high_ms=one.high,
        share=one.ms / step_ms if one.ms is not None and step_ms else None,
        confidence=found.confidence,
        mechanism=kind.mechanism,
        remedy=found.remedy or kind.remedy,
        check=found.check,
        references=list(kind.references),
        changes=list(found.changes),
        technique=next(iter(kind.techniques), None),
        observed=one.observed,
        predicted_ms=one.predicted,
    )
