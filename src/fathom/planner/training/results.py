"""Result types of a plan, which are the contract of `--json`."""

from __future__ import annotations

import math

import msgspec

from fathom.planner.quantity import ASSUMED, CALIBRATED, Quantity, spread
from fathom.planner.training.layout import Layout

_POWER_SPREAD = 0.2  # of the watts of a GPU in training


class Interval(msgspec.Struct, frozen=True):
    """A value, and the interval that holds the truth in nine cases of ten."""

    value: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True):
    """One row of a planned ledger; `entry` is that of a measured one."""

    entry: str
    detail: str
    ms: float


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
        key: Quantity(
            value, unit, plan.provenance, "interval of the step time", value / longer, value / shorter
        )
        for key, (value, unit) in known.items()
        if value
    }
    costs = {"hours": (plan.hours, "h"), "dollars": (plan.dollars, "$")}
    paid = {
        key: Quantity(
            value, unit, plan.provenance, "interval of the step time", value * shorter, value * longer
        )
        for key, (value, unit) in costs.items()
        if value
    }
    return rates | paid | _powers(plan, shorter, longer)


def _powers(plan: Plan, shorter: float, longer: float) -> dict[str, Quantity]:
    """Return watts and energy, whose errors are independent of the step's."""
    watts = plan.watts_per_gpu
    if not watts:
        return {}
    source = "35 to 95 % of the rated power by the share of time that computes, plus the host's share"
    powers = {"watts_per_gpu": spread(watts, _POWER_SPREAD, "W", ASSUMED, source)}
    if energy := plan.megawatt_hours:
        low = energy * math.exp(-math.hypot(math.log(shorter), math.log(1 - _POWER_SPREAD)))
        high = energy * math.exp(math.hypot(math.log(longer), math.log(1 + _POWER_SPREAD)))
        powers["megawatt_hours"] = Quantity(energy, "MWh", ASSUMED, source, low, high)
    return powers
