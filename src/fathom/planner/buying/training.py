"""Two machines for a training job: a side from its plan, and the account of a speed-up, entry by entry."""

from __future__ import annotations

from collections.abc import Mapping

from fathom.planner.buying.machines import AccountRow, Side
from fathom.planner.quantity import Quantity
from fathom.planner.serving import COOLING, ServingPlan
from fathom.planner.training import Plan
from fathom.units import MS_PER_S

_J_PER_KWH = 3.6e6


def training_side(plan: Plan, price: float | None, tokens: float | None) -> Side:
    """Return a machine's side from its plan of training."""
    rate, step = plan.tokens_per_s, plan.step
    million = 1e6 / rate
    kwh = plan.watts_per_gpu * plan.gpus * million / _J_PER_KWH
    low, high = rate * step.value / step.high, rate * step.value / step.low
    return Side(
        system=plan.system,
        gpus=plan.gpus,
        tokens_per_s=Quantity(rate, plan.rate_unit, plan.provenance, "plan of training", low, high),
        kwh_per_million=kwh,
        cooling_kwh_per_million=COOLING * kwh,
        dollars_per_million=price * plan.gpus * million / 3600 if price else None,
        price=price,
        days=tokens / rate / 86400 if tokens else None,
        provenance=plan.provenance,
    )


def training_account(first: Plan, second: Plan) -> list[AccountRow]:
    """Return each entry of both steps, in GPU milliseconds for a sequence or sample; the longest first."""
    return _account(*({row.detail: row.ms * p.gpus / p.batch for row in p.ledger} for p in (first, second)))


def serving_account(first: ServingPlan, second: ServingPlan) -> list[AccountRow]:
    """Return each part of both decode iterations, in GPU milliseconds for a token; the longest first."""
    return _account(*(_per_token(plan) for plan in (first, second)))


def _per_token(plan: ServingPlan) -> dict[str, float]:
    each = MS_PER_S * plan.layout["tp"] * plan.layout["dp"] / plan.batch
    return {name: seconds * each for name, seconds in plan.iteration.items() if seconds > 0}


def _account(first: Mapping[str, float], second: Mapping[str, float]) -> list[AccountRow]:
    total = sum(first.values())
    rows = [
        AccountRow(name, first.get(name, 0.0), second.get(name, 0.0), first.get(name, 0.0) / total)
        for name in dict.fromkeys((*first, *second))
    ]
    return sorted(rows, key=lambda row: -max(row.first_ms, row.second_ms))
