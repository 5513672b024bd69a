"""The score of each tip: kept, broken, not applicable, unknown, or to be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from fathom.errors import BadInputError
from fathom.tips.catalogue import AREAS, CONDITIONS, PLANNED, By, Tip, tips

if TYPE_CHECKING:
    from fathom.analysis.results import Finding, Money
    from fathom.tips.evidence import Evidence

Status = Literal["broken", "unknown", "to-be-read", "kept", "not-applicable"]
STATUSES: tuple[Status, ...] = get_args(Status)
_OF_CHECKS: dict[str, Status] = {
    "pass": "kept",
    "fail": "broken",
    "not_applicable": "not-applicable",
    "abstained": "unknown",
}
_PRECEDENCE: tuple[Status, ...] = ("broken", "unknown", "kept", "not-applicable")
_COSTS = ("gain_ms", "low_ms", "high_ms", "share", "saves_per_day")
NOT_CHECKED = "it was not checked"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A tip and how it is kept. `reason` says why: what was found, or what is missing.

    `gain_ms` is what mending its costliest finding saves of a step, with the interval of the prediction;
    null where no finding says so. `weight` orders the others, the costliest first.
    """

    id: str
    area: str
    title: str
    text: str
    status: Status
    reason: str
    by: By
    gain_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    share: float | None = None  # of the step
    saves_per_day: Money | None = None  # and GPU; null without a price or a gain
    weight: int = 0
    findings: tuple[str, ...] = ()  # that are there
    checks: tuple[str, ...] = ()  # that failed


class Scores(msgspec.Struct, frozen=True):
    """All scores, those of broken tips first, and how many there are of each status."""

    counts: dict[Status, int]
    tips: list[Score]


@dataclass(frozen=True)
class _Answer:
    """What one check or kind of finding says."""

    status: Status
    reason: str
    source: str = ""  # the id of the check or the finding
    weight: int = 0


def score(evidence: Evidence, which: Iterable[Tip] | None = None) -> Scores:
    """Every tip, or those of `which`, against the evidence: broken ones first, the costliest at the top."""
    scored = [_score(tip, evidence) for tip in (tips() if which is None else which)]
    scored.sort(key=_order)
    counts = {status: sum(one.status == status for one in scored) for status in STATUSES}
    return Scores(counts, scored)


def chosen(areas: Iterable[str]) -> list[Tip]:
    """The tips of these areas, all of them for none. Raises BadInputError for an area that there is not."""
    wanted = [*areas]
    for area in wanted:
        if area not in AREAS:
            raise BadInputError(f"There is no area {area[:40]!r}; the areas are {', '.join(AREAS)}.")
    return [tip for tip in tips() if not wanted or tip.area in wanted]


def _order(one: Score) -> tuple[int, float, int]:
    return STATUSES.index(one.status), -(one.gain_ms or 0.0), -one.weight


def _score(tip: Tip, evidence: Evidence) -> Score:
    unfit = next((CONDITIONS[name] for name in tip.applies if evidence.facts.get(name) is False), None)
    if unfit:
        return _scored(tip, "not-applicable", unfit)
    answers = [*_checked(tip, evidence), *_looked_for(tip, evidence)]
    status: Status = next((s for s in _PRECEDENCE if any(a.status == s for a in answers)), "to-be-read")
    if status == "to-be-read":
        return _scored(tip, status, _unjudged(tip))
    decisive = [answer for answer in answers if answer.status == status]
    reason = "; ".join(dict.fromkeys(answer.reason for answer in decisive))
    return _scored(tip, status, reason) if status != "broken" else _broken(tip, reason, decisive, evidence)


def _scored(tip: Tip, status: Status, reason: str) -> Score:
    return Score(
        id=tip.id, area=tip.area, title=tip.title, text=tip.text, status=status, reason=reason, by=tip.by
    )


def _broken(tip: Tip, reason: str, decisive: list[_Answer], evidence: Evidence) -> Score:
    """With what its costliest finding costs: findings of one tip together save less than their sum."""
    kinds = tuple(one.source for one in decisive if one.source in tip.by.findings)
    found = [finding for kind in kinds for finding in evidence.findings[kind]]
    costliest = max(found, key=lambda one: one.gain_ms or 0.0, default=None)
    costs = {} if costliest is None else {name: getattr(costliest, name) for name in _COSTS}
    return msgspec.structs.replace(
        _scored(tip, "broken", reason),
        weight=max(one.weight for one in decisive),
        findings=kinds,
        checks=tuple(one.source for one in decisive if one.source in tip.by.checks),
        **costs,
    )


def _checked(tip: Tip, evidence: Evidence) -> Iterator[_Answer]:
    """What the tip's checks found on this machine."""
    for name in tip.by.checks:
        result = evidence.checks.get(name)
        if result is None:
            yield _Answer("unknown", evidence.why_no_checks if not evidence.checks else NOT_CHECKED)
        elif result.status == "not_applicable" and name in evidence.unjudged:
            yield _Answer("unknown", evidence.unjudged[name])
        else:
            said = result.observed or result.reason or ""
            yield _Answer(_OF_CHECKS[result.status], said, name, result.weight)


def _looked_for(tip: Tip, evidence: Evidence) -> Iterator[_Answer]:
    """What the recording says of the tip's kinds of findings."""
    for kind in tip.by.findings:
        if found := evidence.findings.get(kind):
            yield _Answer("broken", _shown(found[0]), kind)
        elif why := evidence.unseen.get(kind) or evidence.why_no_findings:
            yield _Answer("unknown", why)
        else:
            yield _Answer("kept", f"{kind} was looked for and not found")


def _shown(finding: Finding) -> str:
    """Its title and its first line of evidence."""
    if not finding.evidence:
        return finding.title
    line = finding.evidence[0]
    return f"{finding.title} ({line.text}: {line.value:.3g} {line.unit})".replace(" )", ")")


def _unjudged(tip: Tip) -> str:
    """Why nothing here can judge a tip, and what shows it."""
    if tip.no_program:
        return tip.no_program
    by = tip.by
    ways = [
        *(f"fathom lab run {name}" for name in by.techniques),
        *([f"fathom kernel SOUNDING shows {', '.join(by.measures)}"] if by.measures else []),
        *([f"fathom machine measure {', '.join(by.ceilings)}"] if by.ceilings else []),
        *(f"fathom {name}" + (" (planned)" if name in PLANNED else "") for name in by.commands),
    ]
    return "; ".join(ways)
