"""Reasons why no layout has the degrees that a user wants, and the nearest that works."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.training.layout import DDP, FSDP, RECOMPUTE, SHARDING, ZERO1, ZERO2, Job
from fathom.planner.training.search import degrees, experts_of, interleaving, layouts, spans, why_not_tp
from fathom.planner.workload import Model

Wanted = dict[str, int]
Change = Mapping[str, int | None]  # of gpus, batch or a degree; None leaves a degree out
Reason = tuple[str, Change]
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}  # matrix types
ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float8": "fp8"}
_TRIED = 4096  # multiples of a layout's GPUs, of which the nearest is sought
_OPTIONS = ("gpus", "batch", "shard", "sharding")  # written as options


def check_precision(system: Hardware, precision: str) -> None:
    """Raise BadInputError unless a step can be planned in a precision on a system."""
    rates = {key.split(".")[1] for key in system.figures if key.startswith("matmul.")}
    if PRECISIONS.get(precision) not in rates:
        known = ", ".join(name for name, dtype in PRECISIONS.items() if dtype in rates)
        raise BadInputError(f"{system.name} has no matrix rate for {precision}; choose one of {known}.")


def check_degrees(model: Model, job: Job, wanted: Wanted, shardings: Sequence[int]) -> None:
    """Raise BadInputError with the first reason why no layout has the wanted degrees, and the nearest job."""
    first = _reason(model, job, wanted, shardings)
    if first is None:
        return
    why, changes = first[0], dict(first[1])
    for _ in range(len(_REASONS)):  # a change for one reason can bring another
        job, wanted = _changed(job, wanted, changes)
        following = _reason(model, job, wanted, shardings)
        if following is None:
            break
        changes |= following[1]
    raise BadInputError(f"{why}; {_words(changes)}.")


def _reason(model: Model, job: Job, wanted: Wanted, shardings: Sequence[int]) -> Reason | None:
    reasons = (why(model, job, wanted) for why in _REASONS)
    return next(filter(None, reasons), None) or _combined(model, job, wanted, shardings)


def _changed(job: Job, wanted: Wanted, changes: Change) -> tuple[Job, Wanted]:
    sizes = {name: value for name, value in changes.items() if name in ("gpus", "batch") and value}
    wanted = {name: value for name, value in wanted.items() if name not in changes} | {
        name: value for name, value in changes.items() if value is not None and name not in sizes
    }
    return replace(job, **sizes), wanted  # type: ignore[arg-type]


def _words(changes: Change) -> str:
    """Return changes in words: `the nearest that works is --gpus 16 tp=8 without --ep`."""
    kept = [
        f"--{name} {_named(name, value)}" if name in _OPTIONS else f"{name}={value}"
        for name, value in changes.items()
        if value is not None
    ]
    dropped = [f"--{name}" for name, value in changes.items() if value is None]
    if not kept:
        return f"leave {' and '.join(dropped)} out"
    without = f" without {' and '.join(dropped)}" if dropped else ""
    return f"the nearest that works is {' '.join(kept)}{without}"


def _named(name: str, value: int) -> str:
    codes = {"sharding": SHARDING, "recompute": RECOMPUTE}.get(name, {})
    return next((word for word, code in codes.items() if code == value), str(value))


def nearest_of(values: Iterable[int], wanted: int) -> int:
    """Return the value that is nearest to a wanted one by its ratio, the smaller of two."""
    return min(values, key=lambda value: (abs(math.log(value / wanted)), value))


def divisors(number: int) -> list[int]:
    """Return the divisors of a number."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


# Reasons, in the order in which they are looked for


def _tensor(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    if "tp" not in wanted or not (why := why_not_tp(model, wanted["tp"])):
        return None
    fitting = [t for t in divisors(job.gpus) if not why_not_tp(model, t)]
    return f"Tensor parallelism of {why}", {"tp": nearest_of(fitting, wanted["tp"])}


def _expert(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    ep, experts = wanted.get("ep", 1), experts_of(model)
    if ep == 1 or (experts % ep == 0 and ep <= job.gpus):
        return None
    if experts == 1:
        return f"{model.name} has no experts to spread", {"ep": None}
    fitting = [d for d in divisors(experts) if job.gpus % d == 0]
    why = f"Expert parallelism of {ep} does not spread {experts} experts over {_gpus(job.gpus)}"
    return why, {"ep": nearest_of(fitting, ep)}


def _context(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    cp = wanted.get("cp", 1)
    if spans(job, cp):
        return None
    fitting = [c for c in divisors(job.gpus) if spans(job, c)]
    why = (
        f"Context parallelism of {cp} does not split {job.seq:,} tokens into two equal parts a rank, with at "
        "least 1,024 tokens"
    )
    return why, {"cp": nearest_of(fitting, cp)}


def _pipeline(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    pp, vpp = wanted.get("pp", 1), wanted.get("vpp", 1)
    possible = [p for p in divisors(job.gpus) if p <= model.layers]
    if pp > model.layers:
        why = f"{model.name} has {model.layers} layers, too few for pp={pp}"
        return why, {"pp": nearest_of(possible, pp)}
    fitting = {v for stages in ([pp] if "pp" in wanted else possible) for v in interleaving(model, stages)}
    if vpp == 1 or vpp in fitting:
        return None
    where = "any number of" if "pp" not in wanted else str(pp)
    why = f"{vpp} chunks in {where} stages do not divide the {model.layers} layers of {model.name}"
    return why, {"vpp": nearest_of(fitting, vpp)}


def _size(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    size = math.prod(wanted.get(name, 1) for name in ("tp", "pp", "cp"))
    if job.gpus % size == 0:
        return None
    multiples = (size * times for times in _by_distance(job.gpus / size))
    near = next((gpus for gpus in multiples if degrees(model, replace(job, gpus=gpus), wanted)), size)
    why = (
        f"The layout needs {_gpus(size)}, and there are {job.gpus}"
        if size > job.gpus
        else f"{job.gpus} GPUs do not divide into groups of {size}"
    )
    return why, {"gpus": near}


def _by_distance(times: float) -> list[int]:
    """Return the integers from 1 to twice `times`, the nearest first."""
    return sorted(range(1, min(2 * math.ceil(times), _TRIED) + 1), key=lambda n: abs(n - times))


def _ranks(model: Model, job: Job, wanted: Wanted, any_batch: bool = False) -> set[int]:
    """Return the degrees of data parallelism of all valid layouts."""
    return {row[0] for row in degrees(model, job, wanted, any_batch)}


def _batch(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    ranks = _ranks(model, job, wanted, any_batch=True)
    if not ranks or any(job.batch % dp == 0 for dp in ranks):
        return None
    near = min((dp * max(1, round(job.batch / dp)) for dp in ranks), key=lambda n: abs(n - job.batch))
    why = f"A batch of {job.batch} does not divide over {min(ranks)} data-parallel ranks"
    return why, {"batch": near}


def _micro(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    fitting = {m for dp in _ranks(model, job, wanted) for m in divisors(job.batch // dp)}
    micro = wanted.get("micro", 1)
    if not fitting or micro in fitting:
        return None
    why = f"A micro-batch of {micro} does not divide the sequences of a rank in a batch of {job.batch}"
    return why, {"micro": nearest_of(fitting, micro)}


def _sharding(model: Model, job: Job, wanted: Wanted) -> Reason | None:
    sharding, shard = wanted.get("sharding"), wanted.get("shard", 0)
    if sharding == ZERO2 and wanted.get("pp", 1) > 1:
        why = "A pipeline reduces its gradients once, so that ZeRO 2 saves nothing"
        return why, {"sharding": ZERO1}
    if shard and sharding not in (None, FSDP):
        name = "DDP" if sharding == DDP else f"ZeRO {sharding}"
        return f"{name} has no copies of the parameters that fewer ranks share", {"sharding": FSDP}
    ranks = _ranks(model, job, wanted) if shard else set()
    if not ranks or any(dp % shard == 0 for dp in ranks):
        return None
    why = f"{shard} ranks do not divide the data parallelism of {_gpus(job.gpus)}"
    return why, {"shard": nearest_of({d for dp in ranks for d in divisors(dp)}, shard)}


def _combined(model: Model, job: Job, wanted: Wanted, shardings: Sequence[int]) -> Reason | None:
    """Return the reason for degrees that are possible one by one, but not together."""
    if _has_layout(model, job, wanted, shardings):
        return None
    asked = " ".join(f"{name}={_named(name, value)}" for name, value in wanted.items())
    why = f"No layout has {asked} together, on {_gpus(job.gpus)} with a batch of {job.batch}"
    dropped: dict[str, None] = {}
    for name in reversed(wanted):
        left = {k: v for k, v in wanted.items() if k not in dropped and k != name}
        if _has_layout(model, job, left, shardings):
            return why, {**dropped, name: None}
        dropped[name] = None
    return why, dropped


def _has_layout(model: Model, job: Job, wanted: Wanted, shardings: Sequence[int]) -> bool:
    with suppress(BadInputError):
        return len(layouts(model, job, wanted, shardings)) > 0
    return False


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


_REASONS: tuple[Callable[[Model, Job, Wanted], Reason | None], ...] = (
    _tensor, _expert, _context, _pipeline, _size, _batch, _micro, _sharding,
)  # fmt: skip
