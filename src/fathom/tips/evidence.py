"""The evidence by which tips are judged: the checks of a machine, the findings of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.analysis.results import Examination, Finding
    from fathom.machine.checks import Result

_FINDING = "finding "  # how abstentions begin that are about a kind of finding
NO_SOUNDING = "findings need a recording: fathom tips SOUNDING"
NO_STEP = "findings are about the steps of a program, and none was recorded"
NO_CHECKS = "the checks of its machine were not recorded"
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
    why_no_checks: str = NO_CHECKS
    losses: Mapping[str, list[Loss]] = field(default_factory=dict)
    not_analysed: Mapping[str, str] = field(default_factory=dict)
    why_no_findings: str = ""
    facts: Mapping[str, bool] = field(default_factory=dict)
    unanswered: Mapping[str, str] = field(default_factory=dict)


def of_machine(machine: Mapping[str, Any], checks: Iterable[Result], manifest: bool = False) -> Evidence:
    """The evidence of a machine alone. `manifest`: `checks` hold those of pods, too."""
    results = {result.id: result for result in checks}
    return Evidence(
        checks=results,
        why_no_findings=NO_SOUNDING,
        facts=_facts_of_machine(machine) | ({"kubernetes": True} if manifest else {}),
        unanswered={} if manifest else _of_manifests(results),
    )


def of_sounding(
    examination: Examination,
    machine: Mapping[str, Any],
    checks: Iterable[Result] = (),
    why_no_checks: str = NO_CHECKS,
) -> Evidence:
    """The evidence of a recording: its findings, and the checks of its machine where they are known."""
    results = {result.id: result for result in checks}
    step = examination.step
    return Evidence(
        checks=results,
        why_no_checks=why_no_checks,
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


def _facts_of_machine(machine: Mapping[str, Any]) -> dict[str, bool]:
    """By the inventory; nothing where there is none, as with imported traces."""
    host, gpus = machine.get("host") or {}, machine.get("gpus")
    facts = {name: host[name] is not None for name in ("container", "kubernetes") if name in host}
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
    if len(devices) > 1 or (examination.sounding.get("ranks") or 0) > 1 or _communicates(examination):
        facts["several"] = True
    elif devices and examination.sounding.get("made_by") == "run":  # a trace may be of one rank of many
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
