"""The plan of a recorded program on more GPUs: the fastest sharding that fits, its front and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as replaced

from fathom.analysis.entries import Entry
from fathom.errors import BadInputError
from fathom.planner.quantity import ASSUMED, CALIBRATED, DATASHEET, MEASURED, Quantity
from fathom.planner.training.choosing import USABLE, watts_of
from fathom.planner.training.cost import wait_of
from fathom.planner.training.layout import DDP, FSDP, ZERO1, Layouts
from fathom.planner.training.loading import (
    loading_assumptions,
    loading_derivation,
    loading_notes,
    loading_of,
    widened,
)
from fathom.planner.training.plan import (
    EXTRAPOLATED,
    LEAST,
    dominates,
    interval,
    ledger_of,
    span_wait,
)
from fathom.planner.training.possible import divisors, nearest_of
from fathom.planner.training.rates import constant, constants, draws
from fathom.planner.training.recorded import (
    CARRIED,
    FP32,
    SAME,
    STACK,
    RecordedJob,
    entries,
    exposed,
    factors,
    least_wait,
    memory_parts,
    ratio_of,
    samples_of,
)
from fathom.planner.training.results import (
    Assumption,
    Interval,
    Option,
    Plan,
    Scale,
    figures_of,
    with_figures,
)
from fathom.planner.training.saving import State, saving_derivation, saving_notes, saving_of
from fathom.units import GB, MS_PER_S


def plan_recorded(job: RecordedJob) -> Plan:
    """Return the fastest sharding that fits. Raises BadInputError if none does."""
    best = _best(job)
    plan = _described(job, best)
    fewer = [n for n in (job.gpus // 2**i for i in range(1, 7)) if n and job.gpus % n == 0]
    options = [_option(job, best), *(o for n in fewer if (o := _with_fewer(job, n)))]
    plan.front = [o for o in options if not any(dominates(other, o) for other in options)]
    plan.scaling = list(_scaling(job, best))
    return plan


# Choice


def _layouts(job: RecordedJob) -> Iterator[Layouts]:
    codes = [DDP, ZERO1, FSDP] if job.sharding is None else [job.sharding]
    for code in codes:
        for shard in [job.shard] if job.shard else [0, *(s for s in (8, 32) if s < job.gpus)]:
            if shard and (code != FSDP or job.gpus % shard):
                continue
            yield Layouts(job.gpus, micro=job.samples, sharding=code, shard=shard)


def _best(job: RecordedJob) -> Layouts:
    tried = [(at, sum(memory_parts(job, at).values())) for at in _layouts(job)]
    if not tried:
        raise BadInputError(
            f"No sharding of {job.gpus} GPUs has {job.shard} ranks a copy; the nearest that works is "
            f"--sharding fsdp --shard {nearest_of(divisors(job.gpus), job.shard or 1)}."
        )
    least = min(tried, key=lambda pair: pair[1])
    fitting = [at for at, size in tried if size <= job.limit]
    if not fitting:
        raise BadInputError(
            f"The recorded program does not fit: {least[0].first.words} needs {least[1] / GB:.4g} GB of "
            f"{job.limit / GB:.4g} GB usable; record it with fewer samples a step, or plan for a GPU with "
            f"{math.ceil(least[1] / USABLE / GB)} GB."
        )
    return min(fitting, key=lambda at: sum(entries(job, at).values()))


def _with_fewer(job: RecordedJob, gpus: int) -> Option | None:
    """Return the option on fewer GPUs for the same batch; None if it does not fit."""
    batch = job.batch or job.gpus * job.samples
    known = job.recording.per_step("samples") is not None
    less = replace(job, gpus=gpus, batch=batch if known else None, shard=None)
    try:
        return _option(less, _best(less)) if known else None
    except BadInputError:
        return None


def _option(job: RecordedJob, at: Layouts) -> Option:
    times = entries(job, at)
    seconds, peak = sum(times.values()), sum(memory_parts(job, at).values())
    costs = _costs(job, seconds, watts_of(job.system, times))
    step, _ = _step(job, at, {k: v for k, v in times.items() if k != "data loading"})
    if job.loader:
        loading = loading_of(job.loader, job.system, np.array([samples_of(job)]), at, step.value)
        step = widened(step, job.loader, loading, least_wait(job, job.loader))
    option = Option(at.first, job.gpus, seconds, peak / GB, *costs)
    return with_figures(option, step, _memory(peak), _provenance(job))


def _costs(
    job: RecordedJob, seconds: float, watts: float
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return hours, GPU hours, dollars and MWh of the run; None without a number of tokens or a price."""
    if job.tokens is None:
        return None, None, None, None
    each = job.recording.per_step("tokens")
    if each is None:
        raise BadInputError(
            "The sounding does not say how many tokens a step has; leave --tokens out, or record "
            "`fathom.step(tokens=…)`."
        )
    hours = job.tokens / (each * job.gpus * job.accumulation) * seconds / 3600
    price = job.system.figures.get("price")
    dollars = hours * job.gpus * price.value if price else None
    return hours, hours * job.gpus, dollars, hours * job.gpus * watts / 1e6


# Description


def _described(job: RecordedJob, at: Layouts) -> Plan:
    times, parts = entries(job, at), memory_parts(job, at)
    seconds, watts = sum(times.values()), watts_of(job.system, times)
    counted = job.recording.per_step("tokens") or float(job.samples)
    rate = counted * job.gpus * job.accumulation / seconds
    size = sum(parts.values())
    step, spans = _step(job, at, {k: v for k, v in times.items() if k != "data loading"})
    plan = Plan(
        model=job.recording.name,
        system=job.system.name,
        stack="as recorded",
        precision=_precision(job),
        gpus=job.gpus,
        sequence=0,
        batch=job.samples * job.gpus * job.accumulation,
        layout=at.first,
        step=step,
        memory=_memory(size),
        memory_limit=job.limit,
        ledger=ledger_of(times, spans, _sources(job, times)),
        memory_parts={name: value for name, value in parts.items() if value > 0},
        tokens_per_s=rate,
        tokens_per_s_per_gpu=rate / job.gpus,
        rate_unit="tokens/s" if job.recording.per_step("tokens") else "samples/s",
        mfu=_utilisation(job, seconds),
        watts_per_gpu=watts,
        assumptions=_assumptions(job, at, seconds),
        searched=sum(1 for _ in _layouts(job)),
        provenance=_provenance(job),
        notes=_notes(job),
    )
    plan.hours, _, plan.dollars, plan.megawatt_hours = _costs(job, seconds, watts)
    _load(plan, job, at, times)
    _save(plan, job, at)
    plan.figures = figures_of(plan)
    return plan


def _memory(size: float) -> Interval:
    return Interval(size, 0.9 * size, 1.15 * size)


def _sources(job: RecordedJob, times: dict[str, float]) -> dict[str, str]:
    """Return the provenance of each entry: the recording, or the links between GPUs."""
    recorded = MEASURED if job.is_same_chip else DATASHEET
    return dict.fromkeys(times, recorded) | {"data parallel": constant("link").provenance}


def _load(plan: Plan, job: RecordedJob, at: Layouts, times: dict[str, float]) -> None:
    """Add data loading to a plan."""
    if job.loader is None:
        return
    waited, samples = times["data loading"], np.array([samples_of(job)])
    rest = sum(times.values()) - waited
    plan.loading = replaced(loading_of(job.loader, job.system, samples, at, rest), wait_s=waited)
    before, plan.step = plan.step, widened(plan.step, job.loader, plan.loading, least_wait(job, job.loader))
    span_wait(plan, before)
    plan.notes += loading_notes(plan.loading)
    plan.assumptions += loading_assumptions(job.loader, job.system, samples, at, rest)
    plan.assumptions.sort(key=lambda row: -abs(row.moves))


def _save(plan: Plan, job: RecordedJob, at: Layouts) -> None:
    """Add checkpoints to a plan, if they are asked for."""
    saver = job.stated.saver()
    if saver is None:
        return
    known = job.recording.examination.memory and job.recording.examination.memory.step
    size = Quantity(job.size + job.states, "B", MEASURED if known else ASSUMED, "parameters and states")
    state = State(size, at.sharding[0] != DDP, job.gpus, plan.step.value, plan.hours)
    plan.checkpoint = saving_of(saver, job.system, state)
    plan.notes += saving_notes(saver, job.system, state, plan.checkpoint)


def _step(job: RecordedJob, at: Layouts, times: dict[str, float]) -> tuple[Interval, dict[str, Interval]]:
    """Return the interval of a step without the wait for input, and those of its entries (`times`)."""
    compute = _computed(job, at)
    is_recorded = job.is_same_chip and not job.recording.starved  # else the step was replayed
    noise = SAME if is_recorded else CARRIED
    sent = [exposed(job, at, compute, values) for values in draws()]
    shown = times.get("data parallel", 0.0)
    known = {"data parallel": [max(each, LEAST * shown) for each in sent]}
    spans = {k: interval(v, known.get(k, [v]), noise) for k, v in times.items() if v > 0}
    return interval(sum(times.values()), [compute + each for each in sent], noise), spans


def _computed(job: RecordedJob, at: Layouts) -> float:
    return sum(v for k, v in entries(job, at).items() if k not in ("data parallel", "data loading"))


def _precision(job: RecordedJob) -> str:
    """Return the type of most matrix products."""
    flops: dict[str, float] = {}
    for row in job.recording.device.ledger:
        if row.unit:
            flops[row.unit] = flops.get(row.unit, 0.0) + row.product_flops
    return max(flops, key=lambda unit: flops[unit]).partition(".")[2] if flops else "fp32"


def _utilisation(job: RecordedJob, seconds: float) -> dict[str, float]:
    used, key = job.recording.device.utilisation, f"matmul.{_precision(job)}"
    if used is None or key not in job.system.figures:
        return {}
    return {"model": used.flops * job.accumulation / seconds / job.system[key].value}


def _provenance(job: RecordedJob) -> str:
    return MEASURED if job.is_same_chip and job.gpus == 1 else CALIBRATED if job.is_same_chip else DATASHEET


def _notes(job: RecordedJob) -> list[str]:
    notes = []
    if job.system.announced:
        notes.append(f"{job.system.chip} is announced, not sold: its figures may change.")
    step = job.recording.examination.memory and job.recording.examination.memory.step
    if not job.parameters and not (step and step.parameters_bytes):
        notes.append(
            f"At most {job.size / FP32 / 1e6:.3g} million parameters, by the optimizer's blocks; "
            "--parameters gives the exact number."
        )
    if not job.is_same_chip:
        notes.append(
            f"Kernels keep the share of their ceiling that they reached on {job.recording.here.chip}, and "
            "the host stays as fast: an extrapolation."
        )
    return notes


def _assumptions(job: RecordedJob, at: Layouts, seconds: float) -> list[Assumption]:
    """Return the plan's assumptions, the one that moves the step most first."""
    compute = _computed(job, at)
    rows = []
    for name in ("link", "port", f"serial.{STACK}"):
        q = constant(name)
        ends = [exposed(job, at, compute, constants() | {name: end}) for end in q.interval]
        moves = (ends[1] - ends[0]) / seconds
        rows.append(Assumption(name, q.value, *q.interval, q.provenance, q.source, moves))
    rows += _ratios(job, seconds)
    return sorted(rows, key=lambda row: -abs(row.moves))


def _ratios(job: RecordedJob, seconds: float) -> Iterator[Assumption]:
    """Yield the ratios of ceilings that carry kernels to another chip, 10 % to both sides."""
    rows = [row for row in job.recording.device.ledger if row.entry == Entry.COMPUTE]
    for bound in dict.fromkeys(row.bound or "hbm" for row in rows):
        ratio = ratio_of(bound, job.recording.here, job.system)
        if ratio != 1.0:
            taken = sum(row.ms for row in rows if (row.bound or "hbm") == bound) / MS_PER_S * ratio
            source = f"time on {job.system.name} over that on {job.recording.here.chip}, by {bound}"
            moves = 0.2 * job.accumulation * taken / seconds
            yield Assumption(f"{bound} ratio", ratio, 0.9 * ratio, 1.1 * ratio, ASSUMED, source, moves)


def _scaling(job: RecordedJob, at: Layouts) -> Iterator[Scale]:
    """Yield weak scaling of the same sharding, with the wait for the slowest rank."""
    base = None
    for gpus in (4**i for i in range(11)):
        grown = replace(job, gpus=gpus, batch=None if job.batch is None else job.batch // job.gpus * gpus)
        seconds = sum(entries(grown, replace(at, dp=np.array([gpus]))).values())
        wait = wait_of(job.system, gpus)
        base = base or seconds
        total = seconds * (1 + wait)
        yield Scale(gpus, total, base / total, wait / (1 + wait), gpus > EXTRAPOLATED)


def recorded_derivation(job: RecordedJob, plan: Plan) -> list[str]:
    """Return every step from the recorded ledger to the step of the plan."""
    here, changed = job.recording.here, factors(job)
    lines = [f"{job.recording.name}: recorded step {job.recording.step_ms:.4g} ms on {here.chip}"]
    for bound in dict.fromkeys(
        row.bound or "hbm" for row in job.recording.device.ledger if row.detail in changed
    ):
        taken = sum(row.ms for row in job.recording.device.ledger
                    if row.detail in changed and (row.bound or "hbm") == bound)  # fmt: skip
        ratio = ratio_of(bound, here, job.system)
        lines.append(f"kernels bound by {bound}: {taken:.4g} ms × {ratio:.3f} = {taken * ratio:.4g} ms")
    lines.append(f"parameters: {job.size / GB:.4g} GB, reduced by {job.gpus} GPUs")
    lines.append(f"recorded steps in a step: {job.accumulation}")
    if job.loader:
        at = plan.layout.coded
        lines += loading_derivation(job.loader, job.system, samples_of(job), at)
    lines += saving_derivation(plan.checkpoint) if plan.checkpoint else []
    lines += [f"{row.entry} · {row.detail}: {row.ms:.4g} ms" for row in plan.ledger]
    return [*lines, f"step: {sum(row.ms for row in plan.ledger):.5g} ms"]
