"""Result types of a plan, which are the contract of `--json`."""

from __future__ import annotations

import math

import msgspec

from fathom.planner.quantity import ASSUMED, CALIBRATED, Quantity, spread
from fathom.planner.training.layout import Layout
from fathom.units import GB

_POWER_SPREAD = 0.2  # of the watts of a GPU in training
_POWER_SOURCE = "35 to 95 % of the rated power by the share of time that computes, plus the host's share"
_BY_STEP = "interval of the step time"


class Interval(msgspec.Struct, frozen=True):
    """A value, and the interval that holds the truth in nine cases of ten."""

    value: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True):
    """One row of a planned ledger, with a 90 % interval; `entry` is that of a measured one."""

    entry: str
    detail: str
    ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    provenance: str = ""


class Assumption(msgspec.Struct, frozen=True):
    """A constant or figure behind the plan: its interval, source, and how far it moves the step."""

    name: str
    value: float
    low: float
    high: float
    provenance: str
    source: str
    moves: float  # relative change of the step from the low to the high end


class Option(msgspec.Struct, frozen=True):
    """One layout of the front: no other one is both faster and cheaper."""

    layout: Layout
    gpus: int
    step_s: float
    memory_gb: float
    hours: float | None
    gpu_hours: float | None
    dollars: float | None
    megawatt_hours: float | None
    figures: dict[str, Quantity] = {}  # each of these with its interval


class Scale(msgspec.Struct, frozen=True):
    """The job on another number of GPUs; `extrapolated` beyond the published runs' sizes."""

    gpus: int
    step_s: float
    efficiency: float
    waiting: float  # share of the step that ranks wait for the slowest one
    extrapolated: bool


class Loading(msgspec.Struct, kw_only=True, frozen=True):
    """Data loading of a step: its time if nothing waits for the step, and the wait that remains.

    `rest_s` is the step without that wait. `needed` has the figures that would hide loading, where these are
    too small: workers of a loading rank, cores and B/s of a host.
    """

    seconds: Interval
    wait_s: float
    rest_s: float
    limit: str  # workers, cores, storage, or the program itself
    workers: float
    needed: dict[str, float]


class Saving(msgspec.Struct, kw_only=True, frozen=True):
    """Checkpoints of a run: how long each stops the job, and the goodput that failures leave."""

    bytes: float
    kind: str  # sync, async, memory
    writers: int  # hosts that write
    storage: float  # B/s of all writers
    write_s: Interval  # until it is safe
    stop_s: Interval  # for which the job stops
    every_steps: int
    interval_s: float
    share: float  # of the time that checkpoints stop the job
    mtbf_h: float
    goodput: Interval
    wall_hours: float | None  # of the run, with failures and checkpoints
    assumptions: list[Assumption] = []  # `moves` is the change of the goodput, in points


class Plan(msgspec.Struct, kw_only=True):
    """A plan of a training job. Times in seconds, memory in bytes."""

    model: str
    system: str
    stack: str
    precision: str
    gpus: int
    sequence: int
    batch: int
    layout: Layout
    step: Interval
    memory: Interval
    memory_limit: float
    ledger: list[Row]
    memory_parts: dict[str, float]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: dict[str, float]
    watts_per_gpu: float
    hours: float | None = None
    dollars: float | None = None
    megawatt_hours: float | None = None
    assumptions: list[Assumption] = []
    front: list[Option] = []
    scaling: list[Scale] = []
    searched: int = 0
    provenance: str = CALIBRATED
    notes: list[str] = []
    loading: Loading | None = None
    checkpoint: Saving | None = None
    rate_unit: str = "tokens/s"  # of tokens_per_s; samples/s for recordings without tokens
    figures: dict[str, Quantity] = {}  # rates and costs with their intervals


def figures_of(plan: Plan) -> dict[str, Quantity]:
    """Return rates and costs with the interval that the step's gives them, and their provenance."""
    shorter, longer = plan.step.low / plan.step.value, plan.step.high / plan.step.value
    known = {
        "tokens_per_s": (plan.tokens_per_s, plan.rate_unit),
        "tokens_per_s_per_gpu": (plan.tokens_per_s_per_gpu, plan.rate_unit),
        "mfu": (plan.mfu.get("model"), ""),
    }
    rates = {
        key: Quantity(value, unit, plan.provenance, _BY_STEP, value / longer, value / shorter)
        for key, (value, unit) in known.items()
        if value
    }
    power = spread(plan.watts_per_gpu, _POWER_SPREAD, "W", ASSUMED, _POWER_SOURCE)
    powers = {"watts_per_gpu": power} if plan.watts_per_gpu else {}
    return rates | powers | _costs(plan, plan.step, plan.provenance)


def with_figures(option: Option, step: Interval, memory: Interval, provenance: str) -> Option:
    """Return an option with the intervals of its figures; `memory` is in bytes."""
    size = Quantity(
        option.memory_gb, "GB", provenance, "memory by component", memory.low / GB, memory.high / GB
    )
    length = Quantity(option.step_s, "s", provenance, "parts of the step", step.low, step.high)
    figures = {"step_s": length, "memory_gb": size, **_costs(option, step, provenance)}
    return msgspec.structs.replace(option, figures=figures)


def _costs(of: Plan | Option, step: Interval, provenance: str) -> dict[str, Quantity]:
    """Return time, dollars and energy with their intervals; the error of the power is independent."""
    shorter, longer = step.low / step.value, step.high / step.value
    units = {"hours": "h", "gpu_hours": "h", "dollars": "$"}
    costs = {
        key: Quantity(value, unit, provenance, _BY_STEP, value * shorter, value * longer)
        for key, unit in units.items()
        if (value := getattr(of, key, None))
    }
    if energy := of.megawatt_hours:
        low = energy * math.exp(-math.hypot(math.log(shorter), math.log(1 - _POWER_SPREAD)))
        high = energy * math.exp(math.hypot(math.log(longer), math.log(1 + _POWER_SPREAD)))
        costs["megawatt_hours"] = Quantity(energy, "MWh", ASSUMED, _POWER_SOURCE, low, high)
    return costs
