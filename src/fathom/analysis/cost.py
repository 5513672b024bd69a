"""The cost of a step, and the money that fixing a finding saves per day."""

from __future__ import annotations

from msgspec.structs import replace

from fathom.analysis.results import Cost, Examination, Finding, Money
from fathom.machine import Price

HOUR_MS, DAY_H, MILLION = 3.6e6, 24.0, 1e6


def priced(examination: Examination, price: Price) -> Examination:
    """Return the examination with its cost, and with the money that each fix saves per GPU and day."""
    devices = [device for device in examination.devices if device.device != "cpu"]
    step, number = examination.step, max(len(devices), 1)
    clean = step.clean_mean_ms if step.clean_mean_ms is not None else step.clean_ms
    ms = clean if clean is not None else step.timeline_ms
    per_hour = price.amount * number
    cost = Cost(
        price_per_hour=price.amount,
        currency=price.currency,
        devices=number,
        per_step=None if ms is None else per_hour * ms / HOUR_MS,
        per_million_tokens=_per_million(per_hour, step.tokens_per_s),
        per_million_samples=_per_million(per_hour, step.samples_per_s),
    )
    findings = [replace(finding, saves_per_day=_per_day(finding, price)) for finding in examination.findings]
    return replace(examination, cost=cost, findings=findings)


def _per_million(per_hour: float, per_s: float | None) -> float | None:
    return per_hour / (per_s * 3600.0) * MILLION if per_s else None


def _per_day(finding: Finding, price: Price) -> Money | None:
    return None if finding.share is None else Money(finding.share * price.amount * DAY_H, price.currency)
