"""Result types of a plan, which are the contract of `--json`."""

from __future__ import annotations

import msgspec

from fathom.planner.quantity import CALIBRATED
from fathom.planner.training.layout import Layout


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
