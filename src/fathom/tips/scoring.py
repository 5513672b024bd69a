"""The score of each tip: broken, unknown, to be read, kept, or not applicable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from fathom.errors import BadInputError
from fathom.tips.catalogue import AREAS, CONDITIONS, PLANNED, By, Tip, tips
from fathom.tips.evidence import Evidence

if TYPE_CHECKING:  # importing it takes longer than scoring all tips
    from fathom.analysis.results import Finding, Money

Status = Literal["broken", "unknown", "to-be-read", "kept", "not-applicable"]
STATUSES: tuple[Status, ...] = get_args(Status)
_PRECEDENCE: tuple[Status, ...] = ("broken", "unknown", "kept", "not-applicable")  # of one tip's answers
_OF_CHECKS: dict[str, Status] = {
    "pass": "kept",
    "fail": "broken",
    "not_applicable": "not-applicable",
    "abstained": "unknown",
}
_COSTS = ("gain_ms", "low_ms", "high_ms", "share", "saves_per_day")
NOT_CHECKED = "this check is newer than the recording"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A tip and its status, with the reason: the observation behind it, or the data that is missing.

    `gain_ms` is the time that fixing its costliest finding saves of a step of kind `step_kind`, with the
    interval of the prediction; null where no finding says so. `weight` orders the other broken ones, the
    costliest first.
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
    share: float | None = None  # of that step
    step_kind: str = ""
    of_program: float = 0.0  # share of the program's time
    saves_per_day: Money | None = None  # and GPU; null without a price or a gain
    weight: int = 0
    findings: tuple[str, ...] = ()  # kinds that are present
    checks: tuple[str, ...] = ()  # ids that failed


class Scores(msgspec.Struct, frozen=True):
    """All scores, those of broken tips first, and the number of each status."""

    counts: dict[Status, int]
    tips: list[Score]


@dataclass(frozen=True)
class _Answer:
    """The word of one check or kind of finding on a tip."""

    status: Status
    reason: str
    source: str = ""  # id of the check or the kind
    weight: int = 0


def score(evidence: Evidence, which: Iterable[Tip] | None = None) -> Scores:
    """Every tip, or those of `which`, against the evidence: broken ones first, the costliest at the top."""
    scores = [_score(tip, evidence) for tip in (tips() if which is None else which)]
    scores.sort(key=lambda entry: (STATUSES.index(entry.status), -entry.of_program, -entry.weight))
    statuses = [entry.status for entry in scores]
    return Scores({status: statuses.count(status) for status in STATUSES}, scores)


def chosen(areas: Iterable[str]) -> list[Tip]:
    """The tips of these areas, all of them for none. Raises BadInputError for an unknown area."""
    wanted = [*areas]
    for area in wanted:
        if area not in AREAS:
            raise BadInputError(f"There is no area {area[:40]!r}; the areas are {', '.join(AREAS)}.")
    return [tip for tip in tips() if not wanted or tip.area in wanted]


def _score(tip: Tip, evidence: Evidence) -> Score:
    failing = next((CONDITIONS[name] for name in tip.applies if evidence.facts.get(name) is False), None)
    if failing:
        return _with(tip, "not-applicable", failing)
    answers = [*_of_checks(tip, evidence), *_of_findings(tip, evidence)]
    if not answers:
        return _with(tip, "to-be-read", _ways(tip))
    status = next(s for s in _PRECEDENCE if any(answer.status == s for answer in answers))
    decisive = [answer for answer in answers if answer.status == status]
    scored = _with(tip, status, "; ".join(dict.fromkeys(answer.reason for answer in decisive)))
    return _costed(scored, decisive, evidence) if status == "broken" else scored


def _with(tip: Tip, status: Status, reason: str) -> Score:
    return Score(
        id=tip.id, area=tip.area, title=tip.title, text=tip.text, status=status, reason=reason, by=tip.by
    )


def _costed(broken: Score, decisive: list[_Answer], evidence: Evidence) -> Score:
    """The score with the cost of its costliest finding: several together save less than their sum."""
    sources = {answer.source for answer in decisive}
    kinds = tuple(kind for kind in broken.by.findings if kind in sources)
    scored = msgspec.structs.replace(
        broken,
        weight=max(answer.weight for answer in decisive),
        findings=kinds,
        checks=tuple(name for name in broken.by.checks if name in sources),
    )
    losses = [loss for kind in kinds for loss in evidence.losses[kind]]
    if not losses:
        return scored
    costliest = max(losses, key=lambda loss: loss.share)
    costs = {name: getattr(costliest.finding, name) for name in _COSTS}
    return msgspec.structs.replace(scored, step_kind=costliest.step_kind, of_program=costliest.share, **costs)


def _of_checks(tip: Tip, evidence: Evidence) -> Iterator[_Answer]:
    for name in tip.by.checks:
        result = evidence.checks.get(name)
        if result is None:
            yield _Answer("unknown", NOT_CHECKED if evidence.checks else evidence.why_no_checks)
        elif result.status == "not_applicable" and name in evidence.unanswered:
            yield _Answer("unknown", evidence.unanswered[name])
        else:
            reason = result.observed or result.reason or ""
            yield _Answer(_OF_CHECKS[result.status], reason, name, result.weight)


def _of_findings(tip: Tip, evidence: Evidence) -> Iterator[_Answer]:
    for kind in tip.by.findings:
        if losses := evidence.losses.get(kind):
            yield _Answer("broken", _evident(losses[0].finding), kind)
        elif why := evidence.not_analysed.get(kind) or evidence.why_no_findings:
            yield _Answer("unknown", why)
        else:
            yield _Answer("kept", f"no finding {kind}")


def _evident(finding: Finding) -> str:
    """The finding's title and its first line of evidence."""
    if not finding.evidence:
        return finding.title
    line = finding.evidence[0]
    return f"{finding.title} ({f'{line.text}: {line.value:.3g} {line.unit}'.rstrip()})"


def _ways(tip: Tip) -> str:
    """Why nothing here judges the tip, or where to look."""
    if tip.no_program:
        return tip.no_program
    by = tip.by
    ways = [
        *(f"fathom lab run {name}" for name in by.techniques),
        *([f"fathom kernel SOUNDING ({', '.join(by.measures)})"] if by.measures else []),
        *([f"fathom machine measure ({', '.join(by.ceilings)})"] if by.ceilings else []),
        *(f"fathom {name}{' (planned)' if name in PLANNED else ''}" for name in by.commands),
    ]
    return "; ".join(ways)
