"""Verdict and account of one device's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fathom.analysis.results import Device, Finding, Lead, Part, Step, Verdict
from fathom.diagnosis.verdict.account import account_of
from fathom.diagnosis.verdict.pieces import pieces
from fathom.diagnosis.verdict.verdict import verdict_of
from fathom.machine import Limits


def conclude(
    device: Device | None,
    step: Step,
    findings: Sequence[Finding],
    leads: Sequence[Lead],
    limits: Limits | None,
    limited: Mapping[str, str] | None = None,
) -> tuple[Verdict | None, list[Part]]:
    """(verdict, parts of the account); (None, []) without a ledger.

    `limits` are the measured rates that bound the device's work, `limited` is the limit of each kernel family
    by its counters.
    """
    if device is None or not device.ledger:
        return None, []
    known = limits is not None and device.utilisation is not None and device.utilisation.mfu is not None
    parts = pieces(
        device, findings, leads, limits.arithmetic if limits is not None and known else {}, limited
    )
    stalled_ms = max((step.clean_mean_ms or 0.0) - (step.clean_ms or 0.0), 0.0)
    return verdict_of(device, parts, findings, stalled_ms), account_of(parts)
