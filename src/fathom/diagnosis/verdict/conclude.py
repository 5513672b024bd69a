"""Verdict and account of one device's step: the account is a waterfall from the peak down to the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fathom.analysis.measures import NOT_KNOWN
from fathom.analysis.results import Device, Finding, Lead, Part, Step, Verdict
from fathom.diagnosis.grouping import summed
from fathom.diagnosis.signals import Family, Signals
from fathom.diagnosis.verdict.pieces import Piece, pieces
from fathom.diagnosis.verdict.verdict import verdict_of
from fathom.machine import Limits

WELL = 0.6  # of a resource: below it, the share adds little to the name


def conclude(
    device: Device | None,
    step: Step,
    findings: Sequence[Finding],
    leads: Sequence[Lead],
    limits: Limits | None,
    limited: Mapping[str, str] | None = None,
) -> tuple[Verdict | None, list[Part]]:
    """Return the verdict and the parts of the account; (None, []) without a ledger.

    `limits` are the rates that bound the device's work, `limited` is the limit of each kernel family
    by its counters.
    """
    if device is None or not device.ledger:
        return None, []
    peaks = limits.arithmetic if limits is not None and _trusted(device, limits) else {}
    parts = pieces(device, findings, leads, peaks, limited)
    stalled_ms = max((step.clean_mean_ms or 0.0) - (step.clean_ms or 0.0), 0.0)
    return verdict_of(device, parts, findings, stalled_ms, step.noun), account_of(parts)


def _trusted(device: Device, limits: Limits) -> bool:
    """Return whether the step's products are within the peaks, so that MFU is known."""
    shares = device.utilisation
    return shares is not None and (shares.mfu if limits.measured else shares.mfu_datasheet) is not None


def account_of(pieces: Iterable[Piece]) -> list[Part]:
    """Return the parts in waterfall order, largest first within each stage; they sum to the pieces' time."""
    stages: dict[str, int] = {}  # a finding's rows stay together
    total = summed(
        ((stages.setdefault(piece.part, piece.stage), piece.part, piece.owner), piece.ms) for piece in pieces
    )
    ordered = sorted(total.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return [Part(part, ms, owner) for (_, part, owner), ms in ordered]


def limited_of(signals: Signals) -> dict[str, str]:
    """Return each family's limit, such as `instruction issue, 70 %` or `latency`; {} without counters."""
    known: list[Family] = signals.get("kernels.counted").value or []
    named = (family for family in known if family.measures and family.bound not in ("", NOT_KNOWN))
    return {family.name: _words(family) for family in named}


def _words(family: Family) -> str:
    much = family.used is not None and family.used >= WELL
    return f"{family.bound}, {100 * (family.used or 0.0):.0f} %" if much else family.bound
