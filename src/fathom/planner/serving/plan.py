"""A plan of serving: latencies and rates with intervals, the fleet that meets limits, and its cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from fathom.errors import BadInputError
from fathom.planner.quantity import ASSUMED, CALIBRATED, MEASURED, Quantity
from fathom.planner.serving.constants import calibration, names_for, prior, priors, resolved
from fathom.planner.serving.deployment import Deployment
from fathom.planner.serving.estimate import estimate, is_calibrated, provenance
from fathom.planner.serving.launching import commands, load_test
from fathom.planner.serving.limits import limited
from fathom.planner.serving.load import Fleet, Load, Served, serve
from fathom.planner.serving.search import (
    Limits,
    cost,
    degrees,
    filling,
    floor,
    layouts,
    ledger,
    most,
    search,
    search_pools,
    shared,
    smallest,
)

_Z, _TOP = 1.645, 12  # a 90 % interval; assumptions that a plan lists
_IDLE, _BUSY = 0.45, 0.35  # of the rated power: at rest under load, and added as compute fills the iteration
COOLING = 0.3  # of the IT power, for a PUE of 1.3
_COMPUTES = ("dense matrices", "experts", "output matrix", "attention of prefill")


@dataclass(frozen=True)
class Question:
    """A question of serving: candidates for a replica, their load and limits, and replicas if fixed."""

    candidates: list[Deployment]
    load: Load
    limits: Limits = field(default_factory=Limits)
    objective: str = "gpus"
    replicas: int | None = None
    prefill_replicas: int = 0
    routing: str = "least-loaded"
    values: Mapping[str, float] | None = None  # recalibrated constants
    disaggregated: bool = False  # search replicas for prefill and for decode
    gpus: int | None = None  # the most of a fleet
    is_free: bool = False  # the layout is not given, even in part


class ReplicaLayout(msgspec.Struct, frozen=True):
    """The GPUs that split matrices (`tp`), requests (`dp`) and experts (`ep`) of one replica."""

    tp: int
    dp: int
    ep: int


class Choice(msgspec.Struct, frozen=True):
    """One fleet that meets the limits."""

    layout: ReplicaLayout
    replicas: int
    gpus: int
    ttft_s: float
    tpot_s: float
    within_limits: float
    dollars_per_hour: float | None
    watts: float
    prefill_replicas: int = 0
    output_rate: float = 0.0  # tokens per second of the fleet
    keeps_up: bool = True


class Sensitivity(msgspec.Struct, frozen=True):
    """How far a constant or figure moves TPOT, from the low to the high end of its interval."""

    name: str
    moves: float
    provenance: str
    source: str


class ServingPlan(msgspec.Struct, kw_only=True):
    """A plan of serving. Times in seconds, sizes in bytes; intervals hold 9 cases of 10."""

    model: str
    system: str
    engine: str
    weights: str
    kv: str
    layout: ReplicaLayout
    replicas: int
    prefill_replicas: int
    gpus: int
    figures: dict[str, Quantity]
    within_limits: float
    iteration: dict[str, float]
    batch: int
    kv_blocks: int
    kv_tokens: int
    weight_bytes: float
    floor_tpot: float
    watts_per_gpu: Quantity
    joules_per_token: Quantity
    cooling_joules_per_token: Quantity
    dollars_per_million_tokens: Quantity | None
    choices: list[Choice]
    launch: dict[str, str]
    assumptions: list[Quantity]
    provenance: str
    notes: list[str]
    sensitivity: list[Sensitivity] = []  # largest first
    searched: str = ""  # which fleets are the choices


def plan_serving(question: Question) -> ServingPlan:
    """Return the plan of the best fleet, or of the given one. Raises BadInputError if none works."""
    q = question
    values = q.values or calibration().values
    fleets = _fleets(q, values)
    fleet, served = fleets[0]
    # Equal replicas share the load, so one of them answers for all; a disaggregated fleet is simulated whole.
    alone = Fleet(fleet.decode) if not fleet.prefill else fleet
    part = shared(q.load, fleet.replicas) if not fleet.prefill else q.load
    figures = estimate(alone, part, q.values)
    figures["output_rate"] = figures["output_rate"].times(1 if fleet.prefill else fleet.replicas)
    if q.values:
        figures = {name: replace(f, provenance=MEASURED) for name, f in figures.items()}
    return _described(q, fleet, served, figures, values, [_choice(q, f, s) for f, s in fleets])


def _fleets(q: Question, values: Mapping[str, float]) -> list[tuple[Fleet, Served]]:
    """Return the fleets that answer the question, best first."""
    if q.disaggregated:
        return search_pools(q.candidates, q.load, q.limits, values, q.objective, q.routing, q.gpus)
    if q.replicas is not None or q.prefill_replicas:
        return [_given(q, values)]
    if q.gpus and not q.limits.any:
        return filling(q.candidates, q.load, values, q.gpus)
    if q.limits.any or q.is_free:
        return search(q.candidates, q.load, q.limits, values, q.objective, q.gpus)
    return [_given(q, values)]


def _searched(q: Question) -> str:
    if q.limits.any:
        return "within the limits"
    return f"of at most {q.gpus} GPUs" if q.gpus else "that keep up"


def _given(q: Question, values: Mapping[str, float]) -> tuple[Fleet, Served]:
    of = q.candidates[0]
    prefill = of if q.prefill_replicas else None
    fleet = Fleet(of, q.replicas or 1, prefill, q.prefill_replicas, q.routing)
    if prefill:
        return fleet, serve(fleet, q.load, values)
    return fleet, serve(Fleet(of), shared(q.load, fleet.replicas), values)


def _described(
    q: Question,
    fleet: Fleet,
    served: Served,
    figures: dict[str, Quantity],
    values: Mapping[str, float],
    choices: list[Choice],
) -> ServingPlan:
    of = limited(fleet.decode, q.load.prompt, q.load.output)
    batch = max(1, min(served.peak_batch, of.batch_limit))
    parts = ledger(replace(fleet, decode=of), q.load, values, batch)
    watts = watts_of(of, parts)
    rate = figures["output_rate"]
    return ServingPlan(
        model=of.model.name,
        system=of.hardware.name,
        engine=of.engine.name,
        weights=of.weights,
        kv=of.kv,
        layout=layout_of(of),
        replicas=fleet.replicas,
        prefill_replicas=fleet.prefill_replicas,
        gpus=fleet.gpus,
        figures=figures,
        within_limits=served.within(q.limits.ttft, q.limits.tpot),
        iteration=parts,
        batch=batch,
        kv_blocks=of.blocks,
        kv_tokens=of.blocks * of.engine.block,
        weight_bytes=of.parts.stored,
        floor_tpot=floor(of),
        watts_per_gpu=watts,
        joules_per_token=_per(watts.times(fleet.gpus), rate, "J"),
        cooling_joules_per_token=_per(watts.times(fleet.gpus * COOLING), rate, "J"),
        dollars_per_million_tokens=_dollars(of, fleet, rate),
        choices=choices,
        launch=commands(replace(fleet, decode=of), q.load),
        assumptions=_assumptions(of, values),
        provenance=MEASURED if q.values else provenance(fleet),
        notes=_notes(q, fleet, served, values),
        searched=_searched(q),
        sensitivity=_sensitivity(replace(fleet, decode=of), q.load, values, batch),
    )


def _sensitivity(fleet: Fleet, load: Load, values: Mapping[str, float], batch: int) -> list[Sensitivity]:
    """Return how far each assumption moves a decode iteration, which sets TPOT; the largest first."""
    base = sum(ledger(fleet, load, values, batch).values())
    rows = []
    for name in names_for(fleet.decode):
        middle, spread = values.get(name, prior(name)[0]), calibration().spreads.get(name)
        half = math.exp(_Z * (prior(name)[1] if spread is None else spread))
        ends = [
            sum(ledger(fleet, load, {**values, name: middle * f}, batch).values()) for f in (1 / half, half)
        ]
        moves = (ends[1] - ends[0]) / base
        if abs(moves) > 1e-3:
            source = priors()[name.partition("@")[0]][2]
            rows.append(Sensitivity(name, moves, ASSUMED if spread is None else CALIBRATED, source))
    return sorted(rows, key=lambda row: -abs(row.moves))[:_TOP]


def layout_of(of: Deployment) -> ReplicaLayout:
    """Return the layout of a replica."""
    return ReplicaLayout(of.tp, of.dp, of.ep)


def watts_of(of: Deployment, parts: Mapping[str, float]) -> Quantity:
    """Return the watts of a GPU with its share of the host: more, the more of an iteration computes."""
    if "power" not in of.hardware.figures:
        return Quantity(0.0, "W", ASSUMED, "no rated power is known")
    busy = sum(parts[name] for name in _COMPUTES) / sum(parts.values())
    power = of.hardware["power"].value
    value = power * (_IDLE + _BUSY * busy) + of.hardware["host_power"].value
    return Quantity(
        value, "W", ASSUMED, "45 to 80 % of the rated power, plus the host's share", value * 0.8, value * 1.2
    )


def _per(amount: Quantity, rate: Quantity, unit: str) -> Quantity:
    low, high = amount.interval
    slow, fast = rate.interval
    return replace(
        amount, value=amount.value / rate.value, unit=f"{unit}/token", low=low / fast, high=high / slow
    )


def _dollars(of: Deployment, fleet: Fleet, rate: Quantity) -> Quantity | None:
    if "price" not in of.hardware.figures:
        return None
    price = of.hardware["price"]
    return replace(
        _per(price.times(fleet.gpus / 3600 * 1e6), rate, price.unit.partition("/")[0] or "$"),
        unit="per million tokens",
    )


def _choice(q: Question, fleet: Fleet, served: Served) -> Choice:
    hardware = fleet.decode.hardware
    return Choice(
        layout_of(fleet.decode),
        fleet.replicas,
        fleet.gpus,
        float(served.ttft.mean()),
        float(np.mean(served.tpot)),
        served.within(q.limits.ttft, q.limits.tpot),
        cost(fleet, "dollars") if "price" in hardware.figures else None,
        cost(fleet, "watts") if "power" in hardware.figures else 0.0,
        fleet.prefill_replicas,
        served.output_rate * (1 if fleet.prefill else fleet.replicas),
        served.keeps_up,
    )


def _assumptions(of: Deployment, values: Mapping[str, float]) -> list[Quantity]:
    """Return the constants and figures behind the plan."""
    known, spreads = resolved(of, values), calibration().spreads
    rows = []
    for name, (_, _, about) in priors().items():
        spread = math.exp(1.645 * spreads.get(name, prior(name)[1]))
        rows.append(
            Quantity(
                known[name],
                name,
                "calibrated" if name in spreads else ASSUMED,
                about,
                known[name] / spread,
                known[name] * spread,
            )
        )
    return [
        *(replace(of.hardware[key], unit=f"{key} {of.hardware[key].unit}") for key in ("hbm", "memory")),
        *rows,
    ]


def _notes(q: Question, fleet: Fleet, served: Served, values: Mapping[str, float]) -> list[str]:
    notes = []
    if fleet.decode.hardware.announced:
        notes.append(f"{fleet.decode.hardware.chip} is announced, not sold: its figures may change.")
    if not is_calibrated(fleet):
        notes.append(
            f"No published run on {fleet.decode.hardware.name} informed the constants: extrapolated."
        )
    if served.preempted:
        notes.append(f"{served.preempted} requests were preempted, because the KV cache was full.")
    if served.arriving and (served.leaving is None or not served.keeps_up):
        notes.append(_unsteady(served, 1 if fleet.prefill else fleet.replicas))
    if not served.keeps_up or (not q.limits.any and not q.limits.met_by(served)):
        notes += _ampler(q, fleet, values)
    if q.limits.any and not q.limits.met_by(served):
        share = served.within(q.limits.ttft, q.limits.tpot)
        notes.append(
            f"Only {100 * share:.1f} % of requests meet the limits; {100 * q.limits.share:.0f} % should."
        )
    return notes


def _ampler(q: Question, fleet: Fleet, values: Mapping[str, float]) -> list[str]:
    """Return the fewest GPUs that keep up, in words: a larger tp leaves more memory for the KV cache."""
    of, best = fleet.decode, None
    for c in reversed(list(layouts(of.model, of.hardware, of.engine, of.weights, of.kv))):
        larger = of.having(tp=c.tp, dp=c.dp, ep=c.ep)
        with suppress(BadInputError):  # its cache cannot hold a request
            best = smallest(larger, q.load, q.limits, values, most(larger, best and best[0].gpus - 1)) or best
    if best is None:
        return ["No fleet found keeps up; lower the load, or share it among fleets."]
    within = " within the limits" if q.limits.any else ""
    return [
        f"The fewest GPUs that keep up{within} are {best[0].gpus}: {degrees(best[0].decode)} "
        f"--replicas {best[0].replicas}."
    ]


def _unsteady(served: Served, replicas: int) -> str:
    """Return why the latencies are not those of a steady state."""
    if served.keeps_up:
        return (
            f"The {served.requests:,} simulated requests arrive too fast to show a steady state: latencies "
            "are those of the start, and may be too short."
        )
    return (
        f"Requests ask for {served.arriving * replicas:,.0f} tokens/s, of which "
        f"{served.output_rate * replicas:,.0f} are generated: the queue grows without end, and so do "
        "latencies."
    )


def planned_test(question: Question, plan: ServingPlan) -> str:
    """Return the file of a load test of one replica of the plan."""
    return json.dumps(load_test(_planned(question, plan), question.load), indent=1) + "\n"


def _planned(question: Question, plan: ServingPlan) -> Deployment:
    return next(of for of in question.candidates if layout_of(of) == plan.layout)


def explained(question: Question, plan: ServingPlan) -> list[str]:
    """Return the derivation of the plan, line by line."""
    of, load = _planned(question, plan), question.load
    values = resolved(of, question.values or calibration().values)
    context = load.prompt + load.output / 2
    hbm = of.hardware["hbm"]
    gib = 1024**3
    lines = [
        f"weights on each GPU: {plan.weight_bytes / gib:.2f} GiB in {plan.weights}",
        f"KV cache: {plan.kv_blocks:,} blocks of {of.engine.block} tokens = {plan.kv_tokens:,} tokens, "
        f"{of.kv_bytes / 1024:.1f} KiB each on a GPU in {plan.kv}",
        f"speed of light of a token: {1e3 * plan.floor_tpot:.3f} ms (weights once at "
        f"{hbm.value / 1e12:.2f} TB/s, {hbm.provenance})",
        f"a decode iteration of {plan.batch} sequences with {context:,.0f} tokens each:",
        *(f"  {name:<22}{1e3 * s:>10.3f} ms" for name, s in plan.iteration.items() if s > 0),
        f"  {'sum':<22}{1e3 * sum(plan.iteration.values()):>10.3f} ms",
        f"a request outside iterations: {1e3 * values['request']:.1f} ms and "
        f"{values['polling']:.2f} iterations",
    ]
    for name, q in plan.figures.items():
        low, high = q.interval
        lines.append(
            f"{name:<22}{q.value:>12.4g} {q.unit} [{low:.4g}, {high:.4g}] {q.provenance}: {q.source}"
        )
    lines += [
        f"  assumes {q.unit}: {q.value:.4g} [{q.interval[0]:.4g}, {q.interval[1]:.4g}] "
        f"{q.provenance}: {q.source}"
        for q in plan.assumptions
    ]
    return lines
