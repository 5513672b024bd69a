"""What a step costs, and what mending a finding saves a day."""

from __future__ import annotations

from msgspec.structs import replace

from fathom.analysis.results import Cost, Examination, Finding, Money
from fathom.machine import Price

HOUR_MS, DAY_H, MILLION = 3.6e6, 24.0, 1e6


def priced(examination: Examination, price: Price) -> Examination:
    """The examination with its cost, and with what each finding saves a day and GPU."""
    devices = [one for one in examination.devices if one.device != "cpu"]
    step, number = examination.step, max(len(devices), 1)
    clean = step.clean_mean_ms if step.clean_mean_ms is not None else step.clean_ms
    ms = clean if clean is not None else step.timeline_ms
    an_hour = price.amount * number
    cost = Cost(
        price_per_hour=price.amount,
        currency=price.currency,
        devices=number,
        per_step=None if ms is None else an_hour * ms / HOUR_MS,
        per_million_tokens=_per_million(an_hour, step.tokens_per_s),
        per_million_samples=_per_million(an_hour, step.samples_per_s),
    )
    found = [replace(one, saves_per_day=_a_day(one, price)) for one in examination.findings]
    return replace(examination, cost=cost, findings=found)


def _per_million(an_hour: float, per_s: float | None) -> float | None:
    return an_hour / (per_s * 3600.0) * MILLION if per_s else None


def _a_day(one: Finding, price: Price) -> Money | None:
    return None if one.share is None else Money(one.share * price.amount * DAY_H, price.currency)
