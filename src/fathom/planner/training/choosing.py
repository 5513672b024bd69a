"""The question of a plan, and the layout that answers it: the best one, or the nearest that works."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from fathom.errors import BadInputError
from fathom.planner.hardware import Hardware
from fathom.planner.training.cost import Step
from fathom.planner.training.layout import Job, Layouts
from fathom.planner.training.possible import check_degrees, check_precision
from fathom.planner.training.rates import Rates, Stack, constants, rates_of
from fathom.planner.training.results import Option
from fathom.planner.training.saving import Saver
from fathom.planner.training.search import layouts, rank
from fathom.planner.workload import Model
from fathom.units import GB

OBJECTIVES = ("time", "dollars", "energy")
USABLE = 0.95  # of the memory: the rest is the driver's and other processes'
_IDLE_POWER, _BUSY_POWER = 0.35, 0.6  # shares of the rated power, at rest and added by compute
# The entry of a measured ledger to which each part of a planned step belongs.
ENTRIES = {
    "matmuls": "compute",
    "attention": "compute",
    "norms and elementwise": "compute",
    "optimizer": "compute",
    "other kernels": "compute",
    "copies": "copy",
    "tensor parallel": "communication",
    "context parallel": "communication",
    "expert parallel": "communication",
    "pipeline transfers": "communication",
    "data parallel": "communication",
    "host": "idle: dispatching",
    "host and gaps": "idle",
    "pipeline bubble": "idle: waiting for peers",
    "slowest rank": "idle: waiting for peers",
    "step overhead": "idle: unexplained",
    "data loading": "idle: input",
}


@dataclass(frozen=True)
class Question:
    """A training job to plan: `tokens` is the length of the run, `memory` the usable bytes of a GPU."""

    model: Model
    system: Hardware
    stack: Stack
    job: Job
    wanted: dict[str, int]
    objective: str = "time"
    tokens: float | None = None
    memory: float | None = None
    within: float | None = None  # hours
    saver: Saver | None = None

    @property
    def limit(self) -> float:
        """Return the usable bytes of a GPU."""
        return self.memory or USABLE * self.system["memory"].value

    def rates(self) -> Rates:
        """Return the calibrated rates."""
        return rates_of(self.system, self.stack, constants())


@dataclass(frozen=True)
class Search:
    """The fastest layout of a job on one number of GPUs; without one that fits, that of the least memory."""

    question: Question
    count: int
    layout: Layouts
    seconds: float
    peak: float

    @property
    def fits(self) -> bool:
        """Return whether the layout fits the memory."""
        return math.isfinite(self.seconds)

    def option(self) -> Option:
        """Return the layout with its costs."""
        q, entries = self.question, entries_of(self.question, self.layout)
        costs = costs_of(q, q.job.gpus, self.seconds, watts_of(q.system, entries))
        return Option(self.layout.first, q.job.gpus, self.seconds, self.peak / GB, *costs)


def searches(question: Question) -> list[Search]:
    """Return a search for the job's number of GPUs, and for halves of it."""
    tried, most = [_search(question)], question.job.gpus
    for gpus in (most // 2**i for i in range(1, 7) if most % 2**i == 0):
        with suppress(BadInputError):  # the wanted degrees do not fit
            tried.append(_search(replace(question, job=replace(question.job, gpus=gpus))))
    return tried


def _search(q: Question) -> Search:
    at = layouts(q.model, q.job, q.wanted, q.stack.shardings)
    if q.stack.no_sp:
        at = replace(at, sp=np.zeros(len(at), dtype=bool))
    seconds, peak = rank(q.model, q.system, q.job, q.rates(), at, q.limit)
    best = int(np.argmin(seconds))
    if not np.isfinite(seconds[best]):
        best = int(np.argmin(peak))
    return Search(q, len(at), at[best], float(seconds[best]), float(peak[best]))


def best_of(question: Question, tried: list[Search]) -> Search:
    fitting = [search for search in tried if search.fits]
    if (not tried[0].fits and question.objective == "time") or not fitting:
        raise BadInputError(_too_large(tried[0]))
    if question.objective == "time" and question.within is None:
        return tried[0]
    rated = [(search, search.option()) for search in fitting]
    in_time = [(s, o) for s, o in rated if not question.within or not o.hours or o.hours <= question.within]
    if not in_time:
        fastest = min(o.hours or math.inf for _, o in rated)
        raise BadInputError(
            f"No layout ends within {question.within:g} h; the nearest that works takes {fastest:.4g} h."
        )
    if question.objective == "time":
        return min(in_time, key=lambda pair: pair[1].step_s)[0]
    key = "megawatt_hours" if question.objective == "energy" else "gpu_hours"
    return min(in_time, key=lambda pair: getattr(pair[1], key) or pair[1].step_s * pair[1].gpus)[0]


def entries_of(q: Question, at: Layouts) -> dict[str, float]:
    return {k: float(v[0]) for k, v in Step(q.model, q.system, q.job, at, q.rates()).entries().items()}


def watts_of(system: Hardware, entries: dict[str, float]) -> float:
    """Return the watts of a GPU and its share of the host; power follows the share of time that computes."""
    if "power" not in system.figures:
        return 0.0
    busy = sum(v for k, v in entries.items() if ENTRIES[k] == "compute") / sum(entries.values())
    return system["power"].value * (_IDLE_POWER + _BUSY_POWER * busy) + system["host_power"].value


def costs_of(
    question: Question, gpus: int, seconds: float, watts: float
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return hours, GPU hours, dollars and MWh of the run; None without a number of tokens or a price."""
    q = question
    if q.tokens is None:
        return None, None, None, None
    hours = q.tokens / (q.job.batch * q.job.seq) * seconds / 3600
    price = q.system.figures.get("price")
    dollars = hours * gpus * price.value if price else None
    return hours, hours * gpus, dollars, hours * gpus * watts / 1e6


def check(question: Question) -> None:
    """Raise BadInputError for whatever no layout can give, with the nearest that works."""
    q = question
    check_precision(q.system, q.job.precision)
    if q.objective not in OBJECTIVES:
        raise BadInputError(f"{q.objective!r} is not an objective; choose {', '.join(OBJECTIVES)}.")
    if q.objective == "dollars" and "price" not in q.system.figures:
        raise BadInputError("A plan for dollars needs the price of a GPU hour; give --price, like 2.50/h.")
    if q.within is not None and q.tokens is None:
        raise BadInputError("A limit of hours needs the length of the run; give --tokens, like 1e12.")
    check_degrees(q.model, q.job, q.wanted, q.stack.shardings)


def _too_large(least: Search) -> str:
    """Return the sentence for a job that fits nowhere, with the layout that comes closest."""
    limit, enough = least.question.limit, _enough(least.question)
    more = f"the nearest that works is --gpus {enough}" if enough else "use a smaller batch or sequence"
    return (
        f"No layout fits: the smallest, {least.layout.first.words}, needs {least.peak / GB:.4g} GB of "
        f"{limit / GB:.4g} GB usable, {_bytes(least.peak - limit)} too much; {more}, "
        f"or a GPU with {math.ceil(least.peak / USABLE / GB)} GB."
    )


def _enough(question: Question) -> int | None:
    """Return the fewest GPUs that the job fits, of 2 to 1,024 times as many; None if it fits none."""
    for gpus in (question.job.gpus * 2**i for i in range(1, 11)):
        with suppress(BadInputError):  # the wanted degrees or the batch do not fit
            if _search(replace(question, job=replace(question.job, gpus=gpus))).fits:
                return gpus
    return None


def _bytes(count: float) -> str:
    return f"{count / GB:.4g} GB" if count >= GB / 1000 else f"{max(1, round(count))} B"
