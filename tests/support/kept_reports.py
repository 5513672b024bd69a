"""The reports of recordings that are kept, as examinations whose ledger is the clean step's."""

from __future__ import annotations

from functools import cache

import msgspec
from msgspec.structs import replace

from fathom.analysis.results import Device, Examination
from fathom.machine.limits import Limits
from tests.support.paths import REPORTS


def names() -> list[str]:
    """Of every report that is kept."""
    return sorted(file.stem for file in REPORTS.glob("*.json"))


@cache
def report(name: str) -> Examination:
    """One report; rows and claims of older ones are brought from the profiled to the clean step."""
    decoded = msgspec.json.decode((REPORTS / f"{name}.json").read_bytes(), type=Examination, strict=False)
    for device in decoded.devices:
        if not device.profiled_ledger and decoded.step.clean_ms is not None:
            _clean(device, decoded)
    return decoded


def limits(examination: Examination, device: Device) -> Limits:
    """The measured peaks of its matrix units: of rows that they bound, else of all products by their MFU."""
    products = [row for row in device.ledger if row.unit and row.product_flops]
    peaks = {
        row.unit: row.product_flops / row.at_ceiling_ms * 1e3
        for row in products
        if row.unit == row.bound and row.at_ceiling_ms
    }
    used, step_ms = device.utilisation, examination.step.clean_ms or device.total_ms
    if used and used.mfu and step_ms and not peaks:
        peaks = dict.fromkeys((row.unit for row in products), used.flops / (used.mfu * step_ms) * 1e3)
    return Limits(arithmetic=peaks)


def _clean(device: Device, examination: Examination) -> None:
    scale = {
        (r.entry, r.detail): (r.ms if r.clean_ms is None else r.clean_ms) / r.ms
        for r in device.ledger
        if r.ms
    }
    for finding in examination.findings:
        finding.claims = [
            replace(claim, ms=claim.ms * scale.get((claim.entry, claim.detail), 1.0))
            for claim in finding.claims
        ]
    for row in device.ledger:
        row.ms = row.ms if row.clean_ms is None else row.clean_ms
