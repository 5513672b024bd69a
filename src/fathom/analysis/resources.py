"""Result types for input, memory, energy and cost; parts of the contract in `results.py`."""

from __future__ import annotations

import msgspec

ENTRIES = (  # of the wall time of a job
    *("productive", "start-up", "compilation", "evaluation", "checkpoint", "stall", "restart"),
    *("shutdown", "unattributed"),
)
STALL = 3.0  # steps that take this many times the usual time are stalled beyond it
EVALUATION = "evaluation"  # a kind of step, and in the kind of one that contains it: train+evaluation


class Stages(msgspec.Struct, omit_defaults=True):
    """Medians per batch, by stage of the input pipeline. Null: not recorded."""

    batches: int | None = None  # from which the medians are computed
    fetch_ms: float | None = None
    read_ms: float | None = None
    decode_ms: float | None = None
    transform_ms: float | None = None
    collate_ms: float | None = None
    pin_ms: float | None = None
    copy_ms: float | None = None  # copies to the device per step, including hidden ones
    read_bytes: float | None = None
    threads: int | None = None  # of torch in each loading process, if several
    cpu_wait_share: float | None = None  # share of the time to make a batch spent waiting for a CPU


class Worker(Stages, kw_only=True):
    """A loading process."""

    worker: int


class Input(Stages):
    """The input pipeline of all loading processes, and the steps' waits for it."""

    wait_ms: float | None = None  # per step
    wait_share: float | None = None  # of the step
    workers: list[Worker] = []


class AllocatorPeak(msgspec.Struct):
    """Peaks of one device's allocator in bytes."""

    rank: int
    device: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None


class StepMemory(msgspec.Struct, omit_defaults=True):
    """Bytes by category when one step of the first rank holds the most. Null: none."""

    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_state_bytes: int | None = None
    activations_bytes: int | None = None
    temporaries_bytes: int | None = None
    other_bytes: int | None = None


class Memory(msgspec.Struct, omit_defaults=True):
    """Peak memory in bytes, the largest over devices. Null: not recorded."""

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_resident_bytes: int | None = None  # of the host
    devices: list[AllocatorPeak] = []  # if there are several
    largest_on_rank: int | None = None  # the rank with the highest allocator peak, if there are several
    imbalance_share: float | None = None  # by which that peak exceeds the median rank's
    step: StepMemory | None = None


class DeviceEnergy(msgspec.Struct):
    """One device's share of the energy."""

    rank: int
    device: int
    per_step_j: float
    mean_power_w: float


class Energy(msgspec.Struct, omit_defaults=True):
    """Energy of a clean step, summed over devices, and that of the host. Null: unknown."""

    per_step_j: float | None = None
    per_step_low_j: float | None = None  # lower end of the interval of an estimate
    per_step_high_j: float | None = None
    per_sample_j: float | None = None
    per_token_j: float | None = None
    mean_power_w: float | None = None
    devices: list[DeviceEnergy] = []  # if there are several
    host_per_step_j: float | None = None
    host_mean_power_w: float | None = None
    source: str = ""


class Money(msgspec.Struct):
    """An amount in a currency, given by its three-letter code."""

    amount: float
    currency: str


class Cost(msgspec.Struct):
    """The cost of the program on all its devices, at a price per GPU and hour."""

    price_per_hour: float  # of one device
    currency: str
    devices: int
    per_step: float | None  # of the mean clean step, else of the profiled one
    per_million_tokens: float | None = None
    per_million_samples: float | None = None


class Goodput(msgspec.Struct):
    """Wall time of a job, split into entries that sum to it to the nanosecond.

    `productive` is the usual time of the steps. `start-up` is the time before the first step, `restart` the
    time from the end of an attempt to the first step of the next one.
    """

    share: float  # productive time over wall time
    wall_s: float
    entries_ns: dict[str, int]  # by entry, in the order of ENTRIES
    attempts: int = 1
    steps: int = 0
    rank: int = 0  # the rank with the least productive time, whose entries these are
