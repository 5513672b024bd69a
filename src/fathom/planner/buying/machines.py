"""Two machines for one workload: time, dollars, watts and cooling per token, and where they break even."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.quantity import ASSUMED, Quantity
from fathom.planner.serving import COOLING, ServingPlan, ask_serving, plan_serving
from fathom.planner.training import Plan
from fathom.units import MS_PER_S

_J_PER_KWH = 3.6e6
_DEGREES = (1, 2, 4, 8)
_PEAKS = ("matmul.fp4", "matmul.fp8", "matmul.bf16", "hbm", "memory", "link")


class Side(msgspec.Struct, kw_only=True):
    """One machine under the workload; per million tokens where the name says so."""

    system: str
    gpus: int
    tokens_per_s: Quantity
    kwh_per_million: float
    cooling_kwh_per_million: float
    kwh_interval: tuple[float, float]
    dollars_per_million: float | None
    price: float | None
    days: float | None
    provenance: str


class AccountRow(msgspec.Struct, frozen=True):
    """One entry on both machines, in GPU milliseconds for a unit of work; its share of the first's time."""

    entry: str
    first_ms: float
    second_ms: float
    share: float


class Comparison(msgspec.Struct, kw_only=True):
    """The change by the second machine.

    `claims` are the ratios of peaks, which its maker advertises. `account` is what holds for this workload.
    """

    first: Side
    second: Side
    speedup: float
    speedup_low: float
    speedup_high: float
    claims: dict[str, float]
    even_price: float | None  # of a GPU hour of the second, at which a token costs the same
    even_wait_days: float | None  # for which it pays to wait for the second
    notes: list[str]
    account: list[AccountRow] = []


def side_of(plan: ServingPlan, price: float | None, tokens: float | None) -> Side:
    """Return a machine's side from its serving plan."""
    kwh = plan.joules_per_token.times(1e6 / _J_PER_KWH)
    return _side(plan, plan.figures["output_rate"], kwh, price, tokens)


def training_side(plan: Plan, price: float | None, tokens: float | None) -> Side:
    """Return a machine's side from its plan of training."""
    rate, watts = plan.figures["tokens_per_s"], plan.figures.get("watts_per_gpu")
    (slow, fast), (least, most) = rate.interval, watts.interval if watts else (0.0, 0.0)
    scale = plan.gpus * 1e6 / _J_PER_KWH
    value = plan.watts_per_gpu * scale / rate.value
    kwh = Quantity(value, "kWh", ASSUMED, "watts over the rate", least * scale / fast, most * scale / slow)
    return _side(plan, rate, kwh, price, tokens)


def _side(
    plan: Plan | ServingPlan,
    rate: Quantity,
    kwh: Quantity,
    price: float | None,
    tokens: float | None,
) -> Side:
    return Side(
        system=plan.system,
        gpus=plan.gpus,
        tokens_per_s=rate,
        kwh_per_million=kwh.value,
        cooling_kwh_per_million=COOLING * kwh.value,
        kwh_interval=kwh.interval,
        dollars_per_million=price * plan.gpus * (1e6 / rate.value) / 3600 if price else None,
        price=price,
        days=tokens / rate.value / 86400 if tokens else None,
        provenance=plan.provenance,
    )


def fastest(model: str, chip: Hardware, tp: int | None = None, **options: Any) -> ServingPlan:
    """Return the plan of the layout with the most tokens per second and GPU; of `tp` alone, if it is given.

    Raises BadInputError if no layout fits.
    """
    plans, errors = [], []
    for degree in (tp,) if tp else _DEGREES:
        try:
            plans.append(plan_serving(ask_serving(model, chip, tp=degree, **options)))
        except BadInputError as error:
            errors.append(error)
    if not plans:
        raise errors[0]
    return max(plans, key=lambda plan: plan.figures["output_rate_per_gpu"].value)


def compare_sides(
    first: Side, second: Side, chips: tuple[Hardware, Hardware], account: Sequence[AccountRow] = ()
) -> Comparison:
    """Return the comparison per GPU, with the price and the wait at which both are even."""
    per_gpu = [side.tokens_per_s.value / side.gpus for side in (first, second)]
    low, high = _ratio(first, second)
    speedup = per_gpu[1] / per_gpu[0]
    wait = first.days - second.days if first.days is not None and second.days is not None else None
    return Comparison(
        first=first,
        second=second,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        claims=claims(*chips),
        even_price=first.price * speedup if first.price else None,
        even_wait_days=wait,
        notes=_notes(first, second, chips[1]),
        account=list(account),
    )


def claims(first: Hardware, second: Hardware) -> dict[str, float]:
    """Return the ratios of the peaks that both datasheets state."""
    shared = [key for key in _PEAKS if key in first.figures and key in second.figures]
    return {key: second[key].value / first[key].value for key in shared}


def _ratio(first: Side, second: Side) -> tuple[float, float]:
    """Return the speed-up's interval; errors of the two sides are taken as independent."""
    per = [(side.tokens_per_s, side.gpus) for side in (first, second)]
    value = per[1][0].value / per[1][1] / (per[0][0].value / per[0][1])
    up = [(q.interval[1] / q.value - 1) for q, _ in per]
    down = [(1 - q.interval[0] / q.value) for q, _ in per]
    return value * (1 - (down[1] ** 2 + up[0] ** 2) ** 0.5), value * (1 + (up[1] ** 2 + down[0] ** 2) ** 0.5)


def _notes(first: Side, second: Side, chip: Hardware) -> list[str]:
    notes = []
    if chip.announced:
        notes.append(f"{chip.chip} is announced, not sold: its figures may change.")
    if first.gpus != second.gpus:
        notes.append(f"The fleets differ: {first.gpus} and {second.gpus} GPUs; the speed-up is per GPU.")
    if first.dollars_per_million and second.dollars_per_million:
        cheaper, other = sorted((first, second), key=lambda s: s.dollars_per_million or 0.0)
        ratio = (other.dollars_per_million or 0) / (cheaper.dollars_per_million or 1)
        unit = first.tokens_per_s.unit.removesuffix("s/s")
        notes.append(f"A {unit} costs {ratio:.2f}× as much on {other.system} as on {cheaper.system}.")
    return notes


def training_account(first: Plan, second: Plan) -> list[AccountRow]:
    """Return each entry of both steps, in GPU milliseconds for a sequence or sample; the longest first."""
    return _account(*({row.detail: row.ms * p.gpus / p.batch for row in p.ledger} for p in (first, second)))


def serving_account(first: ServingPlan, second: ServingPlan) -> list[AccountRow]:
    """Return each part of both decode iterations, in GPU milliseconds for a token; the longest first."""
    return _account(*(_per_token(plan) for plan in (first, second)))


def _per_token(plan: ServingPlan) -> dict[str, float]:
    each = MS_PER_S * plan.layout.tp * plan.layout.dp / plan.batch
    return {name: seconds * each for name, seconds in plan.iteration.items() if seconds > 0}


def _account(first: Mapping[str, float], second: Mapping[str, float]) -> list[AccountRow]:
    total = sum(first.values())
    rows = [
        AccountRow(name, first.get(name, 0.0), second.get(name, 0.0), first.get(name, 0.0) / total)
        for name in dict.fromkeys((*first, *second))
    ]
    return sorted(rows, key=lambda row: -max(row.first_ms, row.second_ms))
