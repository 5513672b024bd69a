"""The result types, which `fathom report --json` prints. Fields are added, never renamed or dropped."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fathom.analysis import showing
from fathom.analysis.communication.results import Communication, ExpertLoad, Jitter, LateRank, Pipeline
from fathom.analysis.entries import Entry
from fathom.analysis.resources import Cost, Energy, Goodput, Input, Memory, Money
from fathom.analysis.serving.results import Serving

NO_CEILING_FOR = "no ceiling is known for "  # begins the reason why a row has none
LITTLE = 1e8  # FLOP/s and B/s: less than a tenth of what one core does from memory


class Step(msgspec.Struct):
    """The repeating step. `clean_ms` is null if the undisturbed program was not measured."""

    clean_ms: float | None  # median of the clean phase
    timeline_ms: float | None  # mean of the used windows, which the ledger sums to
    ci_ms: list[float] | None  # 95 % bootstrap interval of clean_ms (of timeline_ms if clean_ms is null)
    n: int  # steps from which ci_ms is computed
    kind: str
    source: str = ""  # source of the steps' marks
    clean_mean_ms: float | None = None  # mean of the same steps
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    # The step to which gains and shares of findings refer: clean_ms; clean_mean_ms if a few long steps make
    # it 2 % longer; timeline_ms without a clean step.
    basis_ms: float | None = None
    # Share of the host's processors that other programs used meanwhile; null if that did not lengthen steps.
    others: float | None = None

    @property
    def noun(self) -> str:
        """Return the noun for text: "window" if the program marks no steps, else "step"."""
        return "window" if self.source in ("repetition", "host") else "step"


def step_noun(kind: str) -> str:
    """Return the noun for a step of this kind: `prefill step`; `step` if its kind has no name."""
    return "step" if kind in ("", "step") else f"{kind} step"


class StepKind(msgspec.Struct):
    """One kind of the program's steps: `train`, `prefill`, `decode`, `train+evaluation`, ..."""

    name: str
    n: int  # undisturbed steps; without a clean phase, those of the timeline
    clean_ms: float | None  # median of the clean phase; null for the reason in `why`
    timeline_ms: float | None  # median of its windows; null if the timeline has none
    share_of_time: float | None  # of the clean phase, else of the timeline
    used: bool  # the ledger is about this kind
    clean_mean_ms: float | None = None  # mean of the same steps
    samples_per_s: float | None = None  # while steps of this kind run
    tokens_per_s: float | None = None
    windows: int = 0  # in the timeline
    why: str = ""  # the reason why clean_ms is null
    note: str = ""  # a caveat about clean_ms
    all_mean_ms: float | None = None  # mean of all steps in the clean phase, the basis of share_of_time
    # For kinds other than the report's that take over 5 % of the time; the report's are at the top level:
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
    """One row of a ledger, per step.

    `ns` are whole nanoseconds that sum exactly: over all used windows in a profiled ledger, over one step
    in a clean one.
    """

    entry: str
    detail: str
    ms: float
    at_ceiling_ms: float | None = None
    ns: int = 0
    clean_ms: float | None = None  # equal to ms in the clean step's ledger; null in a profiled one
    count: float | None = None  # pieces of work per step
    flops: float | None = None  # algorithmic, per step
    bytes: float | None = None  # compulsory, per step
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    abstained: str = ""  # the reason why flops or bytes are null
    bound: str = ""  # the ceiling that sets most of at_ceiling_ms: "hbm", "l2", "matmul.bf16", ...
    unbounded: str = ""  # the reason why at_ceiling_ms is null
    unit: str | None = None  # the ceiling of its matrix work
    product_flops: float = 0.0  # of matrix units per step, including recomputation
    recomputed_flops: float = 0.0  # of those, repeated parts of the forward pass
    divided: bool = False  # its ops launch several kernels: each has a share of the work, by time
    # Duration of its pieces, hidden parts included: for rates. In profiled steps, except for ops of a CPU.
    own_ms: float | None = None
    problem: str = ""  # if its rate is impossible: the rate as a share of its ceiling
    inferred: bool = False  # ms is estimated, for example by subtracting profiling overhead

    @property
    def is_overhead(self) -> bool:
        """Whether this is an op on the processor with so little work that its calls take the time."""
        if self.entry != Entry.OPS or self.flops_per_s is None or self.bytes_per_s is None:
            return False
        return max(self.flops_per_s, self.bytes_per_s) < LITTLE

    @property
    def is_too_short(self) -> bool:
        """Whether its time was inferred too short for its work, so that its rates are unknown."""
        unrated = self.flops_per_s is None and self.bytes_per_s is None
        return self.inferred and self.at_ceiling_ms is not None and unrated


class Utilisation(msgspec.Struct):
    """The share of the step in which matrix units at their peak would do the model's FLOPs.

    MFU counts algorithmic FLOPs of products, convolutions and attention (halved by a causal mask, without
    recomputation), HFU executed FLOPs. Each FLOP counts at the peak of its dtype. The step is the clean one,
    or else the profiled one.
    """

    mfu: float | None  # at the measured ceilings
    hfu: float | None
    mfu_datasheet: float | None  # at the dense datasheet peaks, as in papers
    flops: float  # algorithmic, per step
    partial: bool  # some products' FLOPs are unknown, so the figures are lower bounds
    convention: str
    hfu_datasheet: float | None = None
    step_ms: float = 0.0  # of that step
    units: list[str] = []  # the ceilings of its products, most FLOPs first: matmul.bf16, matmul.tf32


class Category(msgspec.Struct):
    """Device work of one category: matmul, attention, convolution, norm, optimizer, communication, copy …"""

    name: str
    ms: float  # per step; categories sum to the ledger's work
    count: float | None  # kernels, copies or collectives per step; ops on a processor
    flops: float | None = None  # algorithmic, per step; null if unknown for a part of it


class OpShape(msgspec.Struct):
    """Calls of one op with the same input shapes and dtypes. Times are those of its device work."""

    op: str
    shapes: str  # JSON, as in the table of ops
    dtypes: str
    category: str
    count: float  # calls per step
    ms: float  # per step, hidden parts included
    min_us: float  # of one call
    median_us: float
    max_us: float
    flops_per_s: list[float] | None = None  # smallest, median and largest of its calls; null if unknown
    bytes_per_s: list[float] | None = None


class Device(msgspec.Struct):
    """The account of a step on one device."""

    rank: int
    device: str  # "cuda:0", "cpu"
    windows: list[Window]
    total_ms: float | None
    ledger: list[LedgerRow]  # of the clean step, sums to clean_ms; without one, the profiled ledger
    observer_ms: float | None  # clean step minus total_ms
    name: str = ""
    carried_in_ms: float | None = None  # work of other streams that began before the window
    carried_out_ms: float | None = None
    at_ceiling_ms: float | None = None  # speed of light: the time of its work at the ceilings
    at_ceiling_known: float | None = None  # share of the working time that is modelled
    ceilings: str = ""  # source of the ceilings: "measured", "datasheet" (peaks), or "" if unknown
    no_ceilings: str = ""  # if none are known: "missing" (never measured) or "doubtful" (measured while busy)
    at_ceiling_bound: str = ""  # "work", or "launches" if launching the kernels takes longer
    utilisation: Utilisation | None = None
    added_ms: float | None = None  # profiling overhead of a usual step; observer_ms includes uneven steps
    micro_ms: list[float] = []  # mean length of the first, second … micro-step of an accumulated step
    regions: list[Region] = []  # named by the program, longest first
    profiled_ledger: list[LedgerRow] = []  # of the profiled steps: sums to total_ms
    mean_ledger: list[LedgerRow] = []  # if steps are uneven: of the mean clean step, sums to clean_mean_ms
    communication: Communication | None = None  # of the profiled steps; null without any
    categories: list[Category] = []  # of `ledger`, longest first
    shapes: list[OpShape] = []  # of the profiled steps, the 100 longest; [] if shapes were not recorded

    @property
    def label(self) -> str:
        """The name of the device for people: `cuda:0`, `cpu`, or `GPU 0` for a GPU of AMD."""
        return device_label(self.device, self.name)


def device_label(device: str, name: str) -> str:
    """Return the name of a device for people: `cuda:0`, `cpu`, or `GPU 0` if its model is one of AMD."""
    return device.replace("cuda:", "GPU ") if name.startswith("AMD") else device


def label_of(devices: Iterable[Device], index: int) -> str:
    """Return the name for people of the device with this index."""
    device = f"cuda:{index}"
    return device_label(device, next((known.name for known in devices if known.device == device), ""))


class Region(msgspec.Struct):
    """A region that the program names, in the recorded steps."""

    name: str
    ms: float  # of the host per step, with nested regions
    own_ms: float  # without nested regions
    count: float  # number per step
    device_ms: float | None = None  # of the device work launched in it, per step; null without a device


class SlowStep(msgspec.Struct):
    """A step that was recorded because it was slow, with its ledger."""

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
    """Rare clean steps that take far longer than usual, for example because they evaluate or save."""

    rank: int
    kind: str
    n: int
    of: int  # clean steps
    every: int | None  # n if exactly every n-th step is long; null if irregular or unknown
    usual_ms: float
    ms: float  # median of the long ones
    share: float  # extra time of the long steps, as a share of the time of all clean steps
    places: list[Place]  # calls with that extra time, by sampled stacks; [] with too few samples


class FunctionTime(msgspec.Struct):
    """A function of the program, without the program's functions that it calls."""

    function: str
    file: str
    share: float  # of the samples, and so of the mean step
    error: float  # standard error of `share`, if samples are independent
    ms: float  # in the mean step
    lines: list[Place]  # of the function, with their shares of all samples, longest first


class CodeTime(msgspec.Struct):
    """The program's functions in the mean clean step of a CPU, by samples of the host's stacks."""

    rank: int
    kind: str
    samples: int  # in clean steps
    ms: float  # the mean step
    functions: list[FunctionTime]  # longest first


class CountedSteps(msgspec.Struct):
    """Steps of a long run that were counted instead of recorded one by one, by the host's clock.

    Their lengths are without compilation and checkpoints, and were kept in bins of 3 to 6 %.
    """

    rank: int
    kind: str
    n: int
    usual_ms: float  # median
    p99_ms: float
    mean_ms: float


class Abstained(msgspec.Struct):
    """Something that was not analysed, and the reason."""

    what: str
    why: str


class Problem(msgspec.Struct):
    """Something damaged, missing or unusual in the recording."""

    what: str  # a short id: "bad-duration", "stream-overlap", ...
    text: str  # one sentence
    count: int = 1
    rank: int | None = None
    spoils: list[str] = []  # tables whose sums may be wrong


class Integrity(msgspec.Struct):
    """The integrity of a recording: `ok` is False if a problem may make a sum wrong."""

    ok: bool
    problems: list[Problem]


class Where(msgspec.Struct):
    """The place of a finding; unknown fields are null."""

    rank: int | None = None
    device: str | None = None
    module: str | None = None
    region: str | None = None
    source: str | None = None  # file, line and function of the program
    family: str | None = None  # of kernels


class Evidence(msgspec.Struct, frozen=True):
    """One line of evidence for a cause: an observation and its value."""

    text: str
    value: float
    unit: str

    def __post_init__(self) -> None:
        """Make counts floats, as they are when a stored examination is read."""
        msgspec.structs.force_setattr(self, "value", float(self.value))


class Claim(msgspec.Struct, frozen=True):
    """Milliseconds per step of one row of the ledger; claims of findings are disjoint."""

    entry: str
    detail: str
    ms: float


class Finding(msgspec.Struct):
    """A named cause of loss; its kind determines title, mechanism and remedy.

    `gain_ms` is the time per step that fixing it saves, with the interval `low_ms` to `high_ms`, predicted by
    replaying `changes`. It is null if the finding costs no time, or if no prediction is possible.
    `gain_ms` is less than `alone_ms`, the gain if nothing else is fixed, where larger findings save a part of
    it. `with_graphs_ms` is what compiling the model with CUDA graphs saves alone, if that is at least 10 %
    more than `alone_ms`.
    """

    id: str
    title: str
    where: Where
    evidence: list[Evidence]
    claims: list[Claim]
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
    technique: str | None = None  # of the lab, that best demonstrates the fix
    observed: bool = False  # the gain was measured (`fathom run --what-if`), not predicted
    predicted_ms: float | None = None  # the prediction for an observed gain
    alone_ms: float | None = None
    with_graphs_ms: float | None = None
    unpredicted: str = ""  # the reason why there is no prediction although it costs time
    action: str = ""  # the remedy as one imperative sentence
    saves_per_day: Money | None = None  # per GPU; null without a price or a gain

    @property
    def saving(self) -> str:
        """The gain with its interval and share, or that none is predicted."""
        if self.gain_ms is None:
            return "gain not predicted" if self.claims or self.unpredicted else "costs no time"
        share = "" if self.share is None else f", {100 * self.share:.0f} % of the step"
        return f"saves {showing.between(self.gain_ms, self.low_ms, self.high_ms, 2)}{share}"

    def __repr__(self) -> str:
        return showing.tagged("Finding", f"{self.id}: {self.title}; {self.saving}")

    def _repr_html_(self) -> str:
        lines = [f"{line.text}: {showing.number(line.value)} {line.unit}".rstrip() for line in self.evidence]
        return showing.html(self.title, f"{self.id}: {self.saving}", lines, self.remedy)


class Lead(msgspec.Struct):
    """A kernel family far below its ceiling: headroom without an identified cause.

    `gain_ms` is the time per step that it would save at `aim` of its ceiling, by a replay of `change`.
    """

    where: Where
    op: str  # the op that launches most of it
    ms: float  # per step
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
    hint: str = ""  # a suggestion
    technique: str | None = None  # of the lab
    ceiling: str = "measured"  # source of the ceiling: "measured", "datasheet" (peaks)


class Trial(msgspec.Struct):
    """The measured gain of disabling a part of the running program; trials alternate with unchanged steps."""

    kind: str  # input, logging, gc
    n: int  # steps in trials
    trials: int  # stretches of these steps
    baseline_ms: float  # median of the unchanged steps
    trial_ms: float  # median of the steps in trials
    baseline_mean_ms: float  # mean of the unchanged steps next to the trials
    trial_mean_ms: float
    gain_ms: float  # of the mean step
    low_ms: float  # 95 % bootstrap interval
    high_ms: float
    share: float  # of the mean step


class Verdict(msgspec.Struct):
    """The bound of the step, and the first remedy."""

    bound: str  # input, host, launch, communication, workers, copy, memory, compute, unknown
    headline: str  # one sentence: the bound, and the share of the machine that the step reaches
    action: str  # one imperative sentence; "" if nothing is known to help
    gain_ms: float | None  # of the finding
    finding: str | None  # id of the finding behind the action
    explained_by: list[str] = []  # ids of the findings about the time that the bound takes


class Part(msgspec.Struct):
    """One part of the account, which leads from the machine's measured peak to the actual step."""

    part: str  # the use of the time
    ms: float  # of the step, to which the parts sum
    owner: str  # peak, ceiling, no ceiling, finding ID, lead FAMILY, kernels CLASS, cause CAUSE, unexplained


class CriticalPart(msgspec.Struct):
    """Work on the critical path through all ranks: the chain that determines the length of the step."""

    rank: int
    stream: int | None  # null on the host, and between pieces of work
    entry: str  # compute, communication, copy; else the cause: python, input, launch latency, device gap ...
    detail: str  # the kernel family with most of the time
    ms: float  # per step
    share: float  # of the step


class RankSummary(msgspec.Struct):
    """One rank of a job: its step on its first device, and its part in the job's lost time."""

    rank: int
    step_ms: float | None  # the profiled step; null without a ledger
    compute_ms: float
    communication_ms: float  # with the times below
    waiting_ms: float  # for peers at collectives
    moving_ms: float  # of bytes in collectives, after the last peer arrived
    copy_ms: float
    idle_ms: float
    last: int  # collectives that waited for this rank the longest
    cost_ms: float  # per step: time that all others wait for it, at most what it loses
    score: float  # share of all time lost to late ranks
    lost_in: str = ""  # the entry in which it spends most more time than the median rank
    host: str | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


class RecordingSummary(msgspec.Struct):
    """The recorded program, its machine, and how it ended; see `Manifest` for the fields."""

    name: str = ""
    command: list[str] = []
    settings: dict[str, str] = {}
    made_by: str = ""
    created_ns: int = 0
    ended: str = ""
    exit_status: int | None = None
    error: str | None = None  # the exception that ended it
    ranks: int = 0
    programs: dict[int, str] = {}  # by rank; "" if it is not known
    versions: dict[str, str] = {}
    machine: str = ""  # names of GPUs, or else of the processor
    counters: bool = False


class Examination(msgspec.Struct):
    """All results of Fathom on one sounding."""

    step: Step
    devices: list[Device]
    integrity: Integrity
    input: Input | None
    memory: Memory | None
    energy: Energy | None
    findings: list[Finding] = []  # largest gain first
    slow: list[SlowStep] = []
    long_steps: list[LongSteps] = []
    what_if: list[Trial] = []
    abstained: list[Abstained] = []
    sounding: RecordingSummary = msgspec.field(default_factory=RecordingSummary)
    leads: list[Lead] = []  # largest gain first
    kinds: list[StepKind] = []  # of steps, that of the ledger first, then by time
    verdict: Verdict | None = None  # null without a ledger
    account: list[Part] = []  # of the ledger's step; [] without a ledger
    cost: Cost | None = None  # null without a price
    goodput: Goodput | None = None  # null for recordings with profiled steps
    late: list[LateRank] = []  # ranks that others waited for, costliest first; [] if ranks are missing
    ranks: list[RankSummary] = []  # if there are several
    counted: list[CountedSteps] = []  # steps of long runs that were only counted, of the ranks shown
    pipeline: Pipeline | None = None  # null unless ranks send and receive micro-batches
    experts: list[ExpertLoad] = []  # of ranks; [] if all-to-alls deliver equal parts
    critical_path: list[CriticalPart] = []  # longest first; [] if the arrivals of ranks are unknown
    serving: Serving | None = None  # null unless an engine answered requests
    jitter: list[Jitter] = []  # of collectives over steps, largest first; [] with ranks missing or few steps
    code: CodeTime | None = None  # of the first rank, if it computes on a CPU; null with few samples
