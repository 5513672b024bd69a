"""A plan of a training job: the best layout, its ledger, its memory, its cost, and how sure all of it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from fathom.planner.quantity import ASSUMED, CALIBRATED, MEASURED, Quantity
from fathom.planner.training.choosing import (
    ENTRIES,
    Question,
    Search,
    best_of,
    check,
    costs_of,
    entries_of,
    searches,
    watts_of,
)
from fathom.planner.training.cost import Step, wait_of
from fathom.planner.training.layout import DDP, Layouts
from fathom.planner.training.loading import (
    loading_assumptions,
    loading_notes,
    loading_of,
    widened,
)
from fathom.planner.training.memory import peak_bytes
from fathom.planner.training.rates import (
    calibration,
    constant,
    constants,
    draws,
    names_used,
    priors,
    rates_of,
    share_of,
)
from fathom.planner.training.results import (
    Assumption,
    Interval,
    Option,
    Plan,
    Row,
    Scale,
    figures_of,
    with_figures,
)
from fathom.planner.training.saving import State, saving_notes, saving_of
from fathom.planner.workload import Model, convention, flops_per_token
from fathom.units import MS_PER_S

_UNSEEN = 2.0  # factor of the noise on a chip without published runs
_Z = 1.645  # a 90 % interval
LEAST = 0.01  # of an entry that other constants hide
_PARTS = {  # the constant that plays the largest part in an entry
    "matmuls": "matmul",
    "attention": "attention",
    "norms and elementwise": "vector",
    "tensor parallel": "tensor",
    "data parallel": "port",
}
EXTRAPOLATED = 16384  # GPUs beyond which no published run is compared


def plan_training(question: Question) -> Plan:
    """Return the best layout for the objective, with its ledger. Raises BadInputError if none works."""
    check(question)
    tried = searches(question)
    chosen = best_of(question, tried)
    plan = _described(chosen.question, chosen.layout)
    plan.searched = sum(search.count for search in tried)
    options = [(search, search.option()) for search in tried if search.fits]
    front = [pair for pair in options if not any(dominates(other, pair[1]) for _, other in options)]
    plan.front = [_with_figures(search, option) for search, option in front]
    plan.scaling = _scaling(chosen.question, chosen.layout)
    return plan


def _with_figures(search: Search, option: Option) -> Option:
    """Return an option of the front with its intervals."""
    q, at = search.question, search.layout
    times = entries_of(q, at)
    times.pop("data loading", None)
    step, memory = _step_interval(q, at, times)[0], _memory_interval(q, at, search.peak)
    if q.job.loader:
        loading = loading_of(q.job.loader, q.system, q.job.batch / at.dp, at, step.value)
        step = widened(step, q.job.loader, loading)
    return with_figures(option, step, memory, _provenance(q))


def _described(question: Question, at: Layouts) -> Plan:
    q, rates = question, question.rates()
    entries = entries_of(q, at)
    parts = {k: float(v[0]) for k, v in peak_bytes(q.model, q.job, at, rates).items()}
    seconds = sum(entries.values())
    tokens = q.job.batch * q.job.seq
    watts = watts_of(q.system, entries)
    step, spans = _step_interval(q, at, {k: v for k, v in entries.items() if k != "data loading"})
    plan = Plan(
        model=q.model.name,
        system=q.system.name,
        stack=q.stack.name,
        precision=q.job.precision,
        gpus=q.job.gpus,
        sequence=q.job.seq,
        batch=q.job.batch,
        layout=at.first,
        step=step,
        memory=_memory_interval(q, at, sum(parts.values())),
        memory_limit=q.limit,
        ledger=ledger_of(entries, spans, dict.fromkeys(entries, _provenance(q)) | _assumed(q)),
        memory_parts={k: v for k, v in parts.items() if v > 0},
        tokens_per_s=tokens / seconds,
        tokens_per_s_per_gpu=tokens / seconds / q.job.gpus,
        mfu=_utilisation(q, seconds),
        watts_per_gpu=watts,
        assumptions=_assumptions(q, at, seconds),
        notes=_notes(q),
    )
    plan.hours, _, plan.dollars, plan.megawatt_hours = costs_of(q, q.job.gpus, seconds, watts)
    plan.provenance = _provenance(q)
    _load_and_save(plan, q, at, seconds - entries.get("data loading", 0.0))
    plan.figures = figures_of(plan)
    return plan


def _load_and_save(plan: Plan, q: Question, at: Layouts, rest: float) -> None:
    """Add data loading and checkpoints to a plan; `rest` is the step without the wait for input."""
    if q.job.loader:
        samples = q.job.batch / at.dp
        plan.loading = loading_of(q.job.loader, q.system, samples, at, rest)
        before, plan.step = plan.step, widened(plan.step, q.job.loader, plan.loading)
        span_wait(plan, before)
        plan.notes += loading_notes(plan.loading)
        plan.assumptions += loading_assumptions(q.job.loader, q.system, samples, at, rest)
        plan.assumptions.sort(key=lambda row: -abs(row.moves))
    if q.saver:
        is_shared = bool(at.sharding[0] != DDP or at.tp[0] * at.pp[0] > 1)
        state = State.of_model(q.model.parameters, is_shared, q.job.gpus, plan.step.value, plan.hours)
        plan.checkpoint = saving_of(q.saver, q.system, state)
        plan.notes += saving_notes(q.saver, q.system, state, plan.checkpoint)


def ledger_of(entries: dict[str, float], spans: dict[str, Interval], provenance: dict[str, str]) -> list[Row]:
    """Return the rows of a ledger from the seconds by entry, and their intervals."""
    return [
        Row(ENTRIES[k], k, MS_PER_S * v, *_in_ms(spans.get(k)), provenance[k])
        for k, v in entries.items()
        if v > 0
    ]


def _in_ms(span: Interval | None) -> tuple[float | None, float | None]:
    return (MS_PER_S * span.low, MS_PER_S * span.high) if span else (None, None)


def span_wait(plan: Plan, rest: Interval) -> None:
    """Set the interval of the wait for input: the step's ends minus those of the `rest`, at least as wide."""
    ends = [MS_PER_S * max(0.0, a - b) for a, b in ((plan.step.low, rest.low), (plan.step.high, rest.high))]
    low, high = min(ends), max(ends)
    plan.ledger = [
        msgspec.structs.replace(
            row,
            low_ms=min(low, row.ms * rest.low / rest.value),
            high_ms=max(high, row.ms * rest.high / rest.value),
        )
        if row.detail == "data loading"
        else row
        for row in plan.ledger
    ]


def _assumed(question: Question) -> dict[str, str]:
    """Return the entries whose own constant no published run informs."""
    names = names_used(question.system, question.stack) | {
        "matmul": f"matmul.{share_of(question.job.precision)}"
    }
    return {
        entry: ASSUMED
        for entry, part in _PARTS.items()
        if part in names and names[part] in priors() and constant(names[part]).provenance == ASSUMED
    }


def _step_interval(
    question: Question, at: Layouts, times: dict[str, float]
) -> tuple[Interval, dict[str, Interval]]:
    """Return the interval of the step without the wait for input, and those of its entries (`times`)."""
    q = replace(question, job=replace(question.job, loader=None))
    drawn = [Step(q.model, q.system, q.job, at, rates_of(q.system, q.stack, c)).entries() for c in draws()]
    noise = noise_of(q.model) * (1 if q.system.system in known_chips() else _UNSEEN)
    steps = [sum(float(value[0]) for value in each.values()) for each in drawn]
    spans = {
        name: interval(value, [max(float(each[name][0]), LEAST * value) for each in drawn], noise)
        for name, value in times.items()
        if value > 0
    }
    return interval(sum(times.values()), steps, noise), spans


def _memory_interval(question: Question, at: Layouts, size: float) -> Interval:
    q = question
    drawn = [
        sum(float(v[0]) for v in peak_bytes(q.model, q.job, at, rates_of(q.system, q.stack, c)).values())
        for c in draws()
    ]
    return interval(size, drawn, calibration().noise["memory"])


def noise_of(model: Model) -> float:
    """Return the spread of published step times about a plan, in the logarithm."""
    return calibration().noise["experts" if model.is_moe else "dense"]


def interval(value: float, drawn: Sequence[float], noise: float) -> Interval:
    """Return the 90 % interval by the spread of `drawn` values and of measurements about a plan."""
    half = _Z * float(np.hypot(np.std(np.log(drawn)), noise))
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def known_chips() -> set[str]:
    """Return the systems that published runs calibrate."""
    return {name.removeprefix("chip.") for name in constants() if name.startswith("chip.")}


def _provenance(question: Question) -> str:
    if question.system.is_measured:
        return MEASURED
    return CALIBRATED if question.system.system in known_chips() else ASSUMED


def _notes(question: Question) -> list[str]:
    q, notes = question, []
    if q.system.announced:
        notes.append(f"{q.system.chip} is announced, not sold: its figures may change.")
    if q.system.system not in known_chips():
        notes.append(
            f"No published training run on {q.system.name} calibrates this plan: it is an extrapolation."
        )
    if q.system.mixed:
        notes.append(
            f"{' and '.join(q.system.mixed)} share each step equally: all go at the pace of the slowest."
        )
    if q.job.gpus > EXTRAPOLATED:
        wait = wait_of(q.system, q.job.gpus)
        notes.append(
            f"{q.job.gpus:,} GPUs are more than published runs have ({EXTRAPOLATED:,}): an extrapolation. "
            f"Waiting for the slowest rank adds {100 * wait:.1f} % to the step."
        )
    return notes


def _utilisation(question: Question, seconds: float) -> dict[str, float]:
    """Return the MFU by the conventions of model FLOPs, over the peak of the precision."""
    q = question
    peak = q.system.matmul({"mxfp8": "fp8", "nvfp4": "fp4"}.get(q.job.precision, q.job.precision)).value
    tokens = q.job.batch * q.job.seq / seconds / q.job.gpus
    return {
        name: flops_per_token(q.model, q.job.seq, convention(name)) * tokens / peak
        for name in ("model", "full", "6n")
    }


def _assumptions(question: Question, at: Layouts, seconds: float) -> list[Assumption]:
    """Return the plan's assumptions, the one that moves the step most first."""
    q, base = question, constants()
    used = {
        *names_used(q.system, q.stack).values(),
        f"matmul.{share_of(q.job.precision)}",
        "matmul.bf16",
    } & base.keys()  # fp16 has the constant of bf16
    shared = {name for name in base if "." not in name}
    rows = []
    for name in sorted(used | shared):
        quantity = constant(name)
        ends = [_seconds(q, at, base | {name: end}) for end in quantity.interval]
        rows.append(_assumption(name, quantity, (ends[1] - ends[0]) / seconds))
    for key in ("hbm", f"matmul.{q.job.precision}"):
        if (figure := q.system.figures.get(key)) is not None:
            rows.append(_assumption(f"{key} of {q.system.chip}", figure, 0.0))
    return sorted(
        (row for row in rows if abs(row.moves) > 1e-4 or row.moves == 0.0), key=lambda r: -abs(r.moves)
    )


def _seconds(q: Question, at: Layouts, values: dict[str, float]) -> float:
    rates = rates_of(q.system, q.stack, values)
    return float(Step(q.model, q.system, q.job, at, rates).seconds()[0])


def _assumption(name: str, q: Quantity, moves: float) -> Assumption:
    low, high = q.interval
    return Assumption(name, q.value, low, high, q.provenance, q.source, moves)


def dominates(option: Option, other: Option) -> bool:
    """Return whether an option is as fast and as cheap as the other one, and better in one of these."""
    pairs = ((option.step_s, other.step_s), (option.step_s * option.gpus, other.step_s * other.gpus))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _scaling(question: Question, at: Layouts) -> list[Scale]:
    """Return weak scaling: more of the same model-parallel groups, with the wait for the slowest one."""
    q, rows, group = question, [], question.job.gpus // int(at.dp[0])
    per_rank = q.job.batch // int(at.dp[0])
    base = None
    for gpus in _sizes(group):
        dp = gpus // group
        job = replace(q.job, gpus=gpus, batch=per_rank * dp)
        grown = replace(at, dp=np.array([dp]), shard=np.where(at.shard > 0, at.shard, np.minimum(at.dp, dp)))
        seconds = float(Step(q.model, q.system, job, grown, q.rates()).seconds()[0])
        base, wait = base or seconds, wait_of(q.system, gpus)
        rows.append(Scale(gpus, seconds, base / seconds, wait / (1 + wait), gpus > EXTRAPOLATED))
    return rows


def _sizes(group: int) -> list[int]:
    return [n for n in (group * 4**i for i in range(12)) if n <= 1_100_000]
