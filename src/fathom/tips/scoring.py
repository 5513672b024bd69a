"""The score of each tip: broken, unknown, to be read, kept, or not applicable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from fathom.errors import BadInputError
from fathom.machine.model import Machine
from fathom.tips.catalogue import AREAS, CONDITIONS, PLANNED, By, Tip, tips

if TYPE_CHECKING:
    from fathom.analysis.results import Examination, Finding, Money
    from fathom.machine.checks import Result

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
            yield _Answer("unknown", NOT_CHECKED if evidence.checks else NO_CHECKS)
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


# The evidence by which tips are judged
_FINDING = "finding "  # how abstentions begin that are about a kind of finding
NO_SOUNDING = "findings need a recording: fathom tips SOUNDING"
NO_STEP = "findings are about the steps of a program, and none was recorded"
NO_CHECKS = "the checks of the recorded machine are missing"
NO_MANIFEST = "give the pod's manifest with --manifest"
_TRAINING, _INFERENCE = ("train",), ("prefill", "decode", "inference")


@dataclass(frozen=True)
class Loss:
    """A finding, and the kind of steps that it is about, which take `of_time` of the program's time."""

    finding: Finding
    step_kind: str = ""
    of_time: float = 1.0

    @property
    def share(self) -> float:
        """Of the program's time."""
        return (self.finding.share or 0.0) * self.of_time


@dataclass(frozen=True)
class Evidence:
    """Checks by id, findings by kind (`losses`), and why others are missing.

    `not_analysed` holds kinds of findings with the reason; `why_no_findings` is set where none was analysed.
    `facts` say which CONDITIONS hold; a condition that is missing there is unknown. `unanswered` are checks
    that do not apply for want of an input, with what to give.
    """

    checks: Mapping[str, Result] = field(default_factory=dict)
    losses: Mapping[str, list[Loss]] = field(default_factory=dict)
    not_analysed: Mapping[str, str] = field(default_factory=dict)
    why_no_findings: str = ""
    facts: Mapping[str, bool] = field(default_factory=dict)
    unanswered: Mapping[str, str] = field(default_factory=dict)


def of_machine(machine: Machine, checks: Iterable[Result], manifest: bool = False) -> Evidence:
    """The evidence of a machine alone. `manifest`: `checks` hold those of pods, too."""
    results = {result.id: result for result in checks}
    return Evidence(
        checks=results,
        why_no_findings=NO_SOUNDING,
        facts=_facts_of_machine(machine) | ({"kubernetes": True} if manifest else {}),
        unanswered={} if manifest else _of_manifests(results),
    )


def of_sounding(examination: Examination, machine: Machine, checks: Iterable[Result] = ()) -> Evidence:
    """The evidence of a recording: its findings, and the checks of its machine where they are known."""
    results = {result.id: result for result in checks}
    step = examination.step
    return Evidence(
        checks=results,
        losses=_losses(examination),
        not_analysed={
            abstained.what.removeprefix(_FINDING): abstained.why
            for abstained in examination.abstained
            if abstained.what.startswith(_FINDING)
        },
        why_no_findings=NO_STEP if step.clean_ms is None and step.timeline_ms is None else "",
        facts=_facts_of_machine(machine) | _facts_of_program(examination),
        unanswered=_of_manifests(results),
    )


def _losses(examination: Examination) -> dict[str, list[Loss]]:
    """The findings of all kinds of steps, by their own kind."""
    main = next((kind for kind in examination.kinds if kind.used), None)
    of_time = (main.share_of_time if main else None) or 1.0
    losses = [Loss(finding, examination.step.kind, of_time) for finding in examination.findings]
    for kind in examination.kinds:
        losses += (Loss(finding, kind.name, kind.share_of_time or 0.0) for finding in kind.findings)
    by_kind: dict[str, list[Loss]] = {}
    for loss in losses:
        by_kind.setdefault(loss.finding.id, []).append(loss)
    return by_kind


def _of_manifests(checks: Mapping[str, Result]) -> dict[str, str]:
    """The checks that only a manifest answers."""
    return {name: NO_MANIFEST for name, result in checks.items() if result.group == "kubernetes"}


def _facts_of_machine(machine: Machine) -> dict[str, bool]:
    """By the inventory; nothing where there is none, as with imported traces."""
    host, gpus = machine.get("host") or {}, machine.get("gpus")
    facts = {name: value is not None for name, value in host.items() if name in ("container", "kubernetes")}
    if gpus is not None:
        facts["gpu"] = bool(gpus)
        facts["several"] = len(gpus) > 1 or bool(gpus and host.get("rdma"))
    return facts


def _facts_of_program(examination: Examination) -> dict[str, bool]:
    """By its devices, ranks and kinds of steps, as far as they show."""
    facts = {}
    devices = {(device.rank, device.device) for device in examination.devices}
    if devices:
        facts["gpu"] = any(device != "cpu" for _, device in devices)
    if len(devices) > 1 or examination.sounding.ranks > 1 or _communicates(examination):
        facts["several"] = True
    elif devices and examination.sounding.made_by == "run":  # a trace may be of one rank of many
        facts["several"] = False
    names = {part for kind in examination.kinds for part in kind.name.split("+")}
    trains = any(name.startswith(_TRAINING) for name in names)
    infers = any(name.startswith(_INFERENCE) for name in names)
    if trains or infers:
        facts |= {"training": trains, "inference": infers}
    if names:
        facts["loader"] = examination.input is not None
    return facts


def _communicates(examination: Examination) -> bool:
    from fathom.analysis.entries import Entry

    return any(row.entry == Entry.COMMUNICATION for device in examination.devices for row in device.ledger)
