"""The result types: what `fathom report --json` prints. Fields are added, never renamed or dropped."""

from __future__ import annotations

from typing import Any

import msgspec


class Step(msgspec.Struct):
    """The repeating step. `clean_ms` is null where nothing measured the undisturbed program."""

    clean_ms: float | None  # median of the clean phase
    timeline_ms: float | None  # mean of the used windows, which the ledger sums to
    ci_ms: list[float] | None  # 95 % bootstrap interval of clean_ms (of timeline_ms where clean is null)
    n: int  # steps behind ci_ms
    kind: str
    source: str = ""  # what the steps were counted by
    clean_mean_ms: float | None = None  # of the steps that clean_ms is the median of
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    basis_ms: float | None = None  # what findings' gains and shares are of: clean_ms, clean_mean_ms where
    # a few long steps make that another (2 %), timeline_ms without a clean step


class StepKind(msgspec.Struct):
    """One kind of the program's steps: `train`, `prefill`, `decode`, `train+evaluation`, ..."""

    name: str
    n: int  # undisturbed steps; of a recording without a clean phase, the timeline's
    clean_ms: float | None  # median of the clean phase; null: `why`
    timeline_ms: float | None  # mean of its windows; null where none of it fell into the timeline
    share_of_time: float | None  # of the clean phase, else of the timeline
    used: bool  # the ledger is of it
    clean_mean_ms: float | None = None  # of the steps that clean_ms is the median of
    samples_per_s: float | None = None  # while such steps run
    tokens_per_s: float | None = None
    windows: int = 0  # in the timeline
    why: str = ""  # clean_ms is null
    note: str = ""  # what clean_ms holds beside the step
    all_mean_ms: float | None = None  # of all that ran in the clean phase: what share_of_time is made of
    # Of kinds that take over 5 % of the time beside the one of the report, whose own stand at the top:
    verdict: Verdict | None = None
    account: list[Part] = []
    findings: list[Finding] = []
    leads: list[Lead] = []
    ledger: list[LedgerRow] = []


class Window(msgspec.Struct):
    """[start_ns, end_ns) between two device boundaries; only used ones enter the means."""

    start_ns: int
    end_ns: int
    kind: str
    used: bool
    step: int | None = None
    why_not: str = ""


class LedgerRow(msgspec.Struct):
    """One row of a ledger, of one step.

    `ns` are whole nanoseconds that sum exactly: over all used windows in a profiled ledger, of one step in a
    clean one.
    """

    entry: str
    detail: str
    ms: float
    at_ceiling_ms: float | None = None
    ns: int = 0
    clean_ms: float | None = None  # the same as ms in the clean step's ledger; null in a profiled one
    count: float | None = None  # pieces of work a step
    flops: float | None = None  # algorithmic, a step
    bytes: float | None = None  # compulsory, a step
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    abstained: str = ""  # why flops or bytes are null
    bound: str = ""  # the ceiling that sets most of at_ceiling_ms: "hbm", "l2", "matmul.bf16", ...
    unbounded: str = ""  # why at_ceiling_ms is null
    unit: str | None = None  # the ceiling of what matrix units do of it
    product_flops: float = 0.0  # what they do, a step; recomputation included
    recomputed_flops: float = 0.0  # of those, what repeats a part of the forward pass
    own_ms: float | None = None  # its pieces' durations in the recorded steps, hidden parts too: for rates
    problem: str = ""  # its rate cannot be: how far it is above which ceiling
    inferred: bool = False  # ms is the profiled step's less its profiling overhead, not measured


class Utilisation(msgspec.Struct):
    """How much of the matrix units' time the model's FLOPs need, of the clean step (else of the ledger's).

    MFU counts algorithmic FLOPs of products, convolutions and attention (a causal mask halves them; what is
    recomputed is not counted again), HFU those that were executed. Each FLOP counts at the peak of its dtype.
    """

    mfu: float | None  # of the measured ceilings
    hfu: float | None
    mfu_datasheet: float | None  # of the dense datasheet peaks, as papers give it
    flops: float  # algorithmic, a step
    partial: bool  # some products' FLOPs are not known: the figures are lower bounds
    convention: str


class Device(msgspec.Struct):
    """One device's account of a step."""

    rank: int
    device: str  # "cuda:0", "cpu"
    windows: list[Window]
    total_ms: float | None
    ledger: list[LedgerRow]  # of the clean step: sums to clean_ms; without one the profiled ledger
    observer_ms: float | None  # from total_ms to the clean step
    name: str = ""
    carried_in_ms: float | None = None  # work of other streams that began before the window
    carried_out_ms: float | None = None
    at_ceiling_ms: float | None = None  # the step at the speed of light: what its work needs at the ceilings
    at_ceiling_known: float | None = None  # share of the working time whose need is known
    at_ceiling_bound: str = ""  # "work", or "launches" where starting so many kernels takes longer than they
    utilisation: Utilisation | None = None
    added_ms: float | None = None  # by recording, to a usual step; observer_ms has uneven steps in it, too
    micro_ms: list[float] = []  # of an accumulated step: the mean length of its first, second … micro-step
    regions: list[Region] = []  # that the program named, those that take most first
    profiled_ledger: list[LedgerRow] = []  # of the profiled steps: sums to total_ms
    mean_ledger: list[LedgerRow] = []  # where steps are uneven: of the mean clean step, sums to clean_mean_ms


class Region(msgspec.Struct):
    """A stretch that the program named, in the recorded steps."""

    name: str
    ms: float  # of the host a step, nested regions included
    own_ms: float  # without nested regions
    count: float  # begun a step
    device_ms: float | None = None  # of the device's work launched in it, a step; null without a device


class SlowStep(msgspec.Struct):
    """A step that was recorded because it was slow, with its own ledger."""

    rank: int
    step: int
    device: str
    ms: float
    ledger: list[LedgerRow]


class Place(msgspec.Struct):
    """A call in the program, and its share of a time."""

    function: str
    source: str  # file:line
    share: float


class LongSteps(msgspec.Struct):
    """Rare clean steps that take far longer than the usual one, such as those that evaluate or save."""

    rank: int
    kind: str
    n: int
    of: int  # clean steps
    every: int | None  # every so many steps without exception; null: irregular, or not known
    usual_ms: float
    ms: float  # median of the long ones
    share: float  # of the time of all clean steps: what the long ones take beyond usual ones
    places: list[Place]  # where the host spent that, by samples of its stacks; [] without enough of them


class Abstained(msgspec.Struct):
    """What could not be looked at, and why."""

    what: str
    why: str


class Problem(msgspec.Struct):
    """Something damaged, missing or noteworthy in the recording."""

    what: str  # a short id: "bad-duration", "stream-overlap", ...
    text: str  # one sentence
    count: int = 1
    rank: int | None = None
    spoils: list[str] = []  # tables whose sums it may falsify


class Integrity(msgspec.Struct):
    """Whether the recording can be trusted: `ok` is False where a problem may falsify a sum."""

    ok: bool
    problems: list[Problem]


class Worker(msgspec.Struct, omit_defaults=True):
    """One loading process: its batches, and medians of what making one took. Null: not recorded."""

    worker: int
    batches: int = 0
    fetch_ms: float | None = None
    read_ms: float | None = None
    decode_ms: float | None = None
    transform_ms: float | None = None
    collate_ms: float | None = None
    pin_ms: float | None = None
    copy_ms: float | None = None
    read_bytes: float | None = None
    threads: int | None = None
    cpu_wait_share: float | None = None


class Input(msgspec.Struct, omit_defaults=True):
    """The input pipeline: waits a step, and medians a batch by stage. Null: not recorded."""

    batches: int | None = None  # that the medians are of
    wait_ms: float | None = None  # a step
    wait_share: float | None = None  # of the step
    fetch_ms: float | None = None
    read_ms: float | None = None
    decode_ms: float | None = None
    transform_ms: float | None = None
    collate_ms: float | None = None
    pin_ms: float | None = None
    copy_ms: float | None = None  # of a step's copies to the device, hidden ones too
    read_bytes: float | None = None
    threads: int | None = None  # of torch in each loading process, where more than one
    cpu_wait_share: float | None = None  # of making a batch: waiting for a processor
    workers: list[Worker] = []


class AllocatorPeak(msgspec.Struct):
    """The most that one device's allocator held, in bytes."""

    rank: int
    device: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None


class Memory(msgspec.Struct, omit_defaults=True):
    """Peaks of memory in bytes; of several devices the largest. Null: not recorded."""

    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_device_bytes: int | None = None
    peak_resident_bytes: int | None = None  # of the host
    devices: list[AllocatorPeak] = []  # where there are several


class DeviceEnergy(msgspec.Struct):
    """One device's share of the energy."""

    rank: int
    device: int
    per_step_j: float
    mean_power_w: float


class Energy(msgspec.Struct, omit_defaults=True):
    """Energy of a clean step, summed over devices, beside the host's. Null: not known."""

    per_step_j: float | None = None
    per_step_low_j: float | None = None  # with per_step_high_j the interval of an estimate
    per_step_high_j: float | None = None
    per_sample_j: float | None = None
    per_token_j: float | None = None
    mean_power_w: float | None = None
    devices: list[DeviceEnergy] = []  # where there are several
    host_per_step_j: float | None = None
    host_mean_power_w: float | None = None
    source: str = ""


class Money(msgspec.Struct):
    """An amount in a currency, by its code of three letters."""

    amount: float
    currency: str


class Cost(msgspec.Struct):
    """What the program costs at a price of one GPU and hour, all its devices together."""

    price_per_hour: float  # of one device
    currency: str
    devices: int
    per_step: float | None  # the mean clean step, else the profiled one
    per_million_tokens: float | None = None
    per_million_samples: float | None = None


class Where(msgspec.Struct):
    """Where a finding lies, as far as the recording tells."""

    rank: int | None = None
    device: str | None = None
    module: str | None = None
    region: str | None = None
    source: str | None = None  # file, line, function of the program
    family: str | None = None  # of kernels


class Shown(msgspec.Struct):
    """One line of evidence, with the figure behind it."""

    text: str
    value: float
    unit: str


class Claimed(msgspec.Struct):
    """Milliseconds a step of one row of the ledger; no two findings claim the same ones."""

    entry: str
    detail: str
    ms: float


class Finding(msgspec.Struct):
    """A named cause of loss. Title, mechanism and remedy are its kind's.

    `gain_ms` of a step is what mending it saves, with an interval from `low_ms` to `high_ms`, predicted by
    replaying `changes`; null where it costs no time, or where nothing can be predicted.
    """

    id: str
    title: str
    where: Where
    evidence: list[Shown]
    claims: list[Claimed]
    gain_ms: float | None
    low_ms: float | None
    high_ms: float | None
    share: float | None  # of the step
    confidence: float  # 0 to 1, that the cause is there
    mechanism: str
    remedy: str
    check: str
    references: list[str] = []
    changes: list[str] = []
    technique: str | None = None  # of the lab, that shows it best
    observed: bool = False  # the gain was seen in the running program (`fathom run --what-if`), not predicted
    predicted_ms: float | None = None  # what would have been predicted
    unpredicted: str = ""  # why no gain is predicted of what does cost time
    saves_per_day: Money | None = None  # and GPU; null without a price or a gain


class Lead(msgspec.Struct):
    """A kernel family far from what bounds it. That is a distance and no cause: something to look into.

    `gain_ms` of a step is what it would save at `aim` of its ceiling, predicted by replaying `change`.
    """

    where: Where
    op: str  # what launches most of it
    ms: float  # a step
    share: float  # of the step
    at_ceiling_ms: float
    of_ceiling: float
    bound: str  # the ceiling: "hbm", "matmul.bf16", ...
    aim: float  # of the ceiling
    change: str
    gain_ms: float
    low_ms: float
    high_ms: float
    gain_share: float  # of the step
    hint: str = ""  # what is worth trying
    technique: str | None = None  # of the lab


class Trial(msgspec.Struct):
    """What leaving something out gained in the running program, tried in turns with unchanged steps."""

    kind: str  # input, logging, gc
    n: int  # steps that were tried
    trials: int  # stretches that they ran in
    baseline_ms: float  # median of the unchanged steps
    trial_ms: float  # median without it
    baseline_mean_ms: float  # mean of the unchanged steps beside the trials
    trial_mean_ms: float
    gain_ms: float  # of the mean step
    low_ms: float  # 95 % bootstrap interval
    high_ms: float
    share: float  # of the mean step


class Verdict(msgspec.Struct):
    """What bounds the step, and the first thing to do about it."""

    bound: str  # input, host, launch, communication, copy, memory, compute, unknown
    headline: str  # one sentence: what bounds the step, and what share of the machine it reaches
    action: str  # one imperative sentence; "" where nothing is known to help
    gain_ms: float | None  # of the finding
    finding: str | None  # id of the finding that the action comes from


class Part(msgspec.Struct):
    """One part of the account, which leads from the machine's measured peak to the step as it is."""

    part: str  # what the time goes to
    ms: float  # of the step; the parts sum to it
    owner: (
        str  # "peak", "ceiling", "finding ID", "lead FAMILY", "kernels CLASS", "cause CAUSE", "unexplained"
    )


class Examination(msgspec.Struct):
    """Everything that Fathom has to say about one sounding."""

    step: Step
    devices: list[Device]
    integrity: Integrity
    input: Input | None
    memory: Memory | None
    energy: Energy | None
    findings: list[Finding] = []  # those that save most first
    slow: list[SlowStep] = []
    long_steps: list[LongSteps] = []
    what_if: list[Trial] = []
    abstained: list[Abstained] = []
    sounding: dict[str, Any] = {}  # name, command, how it ended, versions, machine in short
    leads: list[Lead] = []  # those that would save most first
    kinds: list[StepKind] = []  # of steps, that of the ledger first, then those that take most time
    verdict: Verdict | None = None  # null without a ledger
    account: list[Part] = []  # of the ledger's step; [] without one
    cost: Cost | None = None  # null without a price
