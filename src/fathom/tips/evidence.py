"""What is known of a machine and a program, as far as tips are judged by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.analysis.results import Examination, Finding
    from fathom.machine.checks import Result

_ABOUT = "finding "  # how abstentions begin that are about a kind of finding
NO_SOUNDING = "findings need a sounding of the program: fathom tips SOUNDING"
NO_STEP = "findings are about the steps of a program, and none was recorded"
NO_CHECKS = "the machine's checks were not stored with this sounding"
NO_MANIFEST = "give the pod's manifest with --manifest"
_TRAINING, _INFERENCE = ("train",), ("prefill", "decode", "inference")


@dataclass(frozen=True)
class Evidence:
    """Checks by id, findings by kind, and why the others are not known.

    `unseen` holds the kinds that were not looked for, with the reason; `why_no_findings` is set where none
    was. `facts` say which CONDITIONS hold; a condition that is missing there is not known. `unjudged` are checks
    that do not apply for want of an input, with what to give.
    """

    checks: Mapping[str, Result] = field(default_factory=dict)
    why_no_checks: str = NO_CHECKS
    findings: Mapping[str, list[Finding]] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    why_no_findings: str = ""
    facts: Mapping[str, bool] = field(default_factory=dict)
    unjudged: Mapping[str, str] = field(default_factory=dict)


def of_machine(machine: Mapping[str, Any], checks: Iterable[Result], manifest: bool = False) -> Evidence:
    """The evidence of a machine alone, by its inventory and its checks; `manifest`: pods were judged too."""
    known = {result.id: result for result in checks}
    return Evidence(
        checks=known,
        why_no_findings=NO_SOUNDING,
        facts=_facts_of_machine(machine) | ({"kubernetes": True} if manifest else {}),
        unjudged={} if manifest else _of_manifests(known),
    )


def of_sounding(
    examination: Examination,
    machine: Mapping[str, Any],
    checks: Iterable[Result],
    why_no_checks: str = NO_CHECKS,
) -> Evidence:
    """The evidence of a recording: its examination, its machine, and the checks of that machine, if known."""
    found: dict[str, list[Finding]] = {}
    for finding in [*examination.findings, *(one for kind in examination.kinds for one in kind.findings)]:
        found.setdefault(finding.id, []).append(finding)
    unseen = {a.what.removeprefix(_ABOUT): a.why for a in examination.abstained if a.what.startswith(_ABOUT)}
    step = examination.step
    known = {result.id: result for result in checks}
    return Evidence(
        checks=known,
        why_no_checks=why_no_checks,
        findings=found,
        unseen=unseen,
        why_no_findings=NO_STEP if step.clean_ms is None and step.timeline_ms is None else "",
        facts=_facts_of_machine(machine) | _facts_of_program(examination),
        unjudged=_of_manifests(known),
    )


def _of_manifests(checks: Mapping[str, Result]) -> dict[str, str]:
    """The checks that only a manifest can answer."""
    return {name: NO_MANIFEST for name, result in checks.items() if result.group == "kubernetes"}


def _facts_of_machine(machine: Mapping[str, Any]) -> dict[str, bool]:
    """By the inventory; nothing where there is none, as with imported traces."""
    host = machine.get("host") or {}
    gpus = machine.get("gpus")
    facts = {name: host[name] is not None for name in ("container", "kubernetes") if name in host}
    if gpus is not None:
        facts["gpu"] = bool(gpus)
        facts["several"] = len(gpus) > 1 or bool(gpus and host.get("rdma"))
    return facts


def _facts_of_program(examination: Examination) -> dict[str, bool]:
    """By its devices, ranks and kinds of steps, as far as they show."""
    facts = {}
    devices = {device.device for device in examination.devices}
    if devices:
        facts["gpu"] = devices != {"cpu"}
    if len(devices) > 1 or (examination.sounding.get("ranks") or 0) > 1:
        facts["several"] = True
    kinds = {part for kind in examination.kinds for part in kind.name.split("+")}
    if kinds:
        trains = any(name.startswith(_TRAINING) for name in kinds)
        infers = any(name.startswith(_INFERENCE) for name in kinds)
        facts |= {"training": trains, "inference": infers} if trains or infers else {}
        facts["loader"] = examination.input is not None
    return facts
