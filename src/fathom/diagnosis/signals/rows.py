"""The types of elements in list signals. Times are in milliseconds per step, counts are per step."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import msgspec

from fathom.analysis.results import Claim
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of


class Work(msgspec.Struct, frozen=True, dict=True):
    """Device work of one family by one op; the `ms` of a family sum to its row of the ledger.

    `ops` are the names from the outermost op to the launching op. `blocks` and `threads` are per launch.
    """

    entry: str
    family: str
    ms: float
    count: float
    ops: tuple[str, ...] = ()
    shapes: str | None = None
    dtypes: str | None = None
    module: str | None = None
    source: str | None = None
    region: str | None = None
    blocks: int | None = None
    threads: int | None = None
    alone: bool = True  # on the stream that computes most
    bytes: float | None = None  # of a copy or set, a step
    ran: str | None = None  # like `source`, by the line that ran

    @property
    def path(self) -> str:
        """The ops as one text."""
        return " > ".join(self.ops)

    @property
    def op(self) -> str:
        """The op that launched the work; empty if unknown."""
        return self.ops[-1] if self.ops else ""

    @property
    def backward(self) -> bool:
        """Whether the autograd engine called the op."""
        return self.path.startswith("autograd::")

    @cached_property
    def sizes(self) -> list[list[int]]:
        """The op's input shapes; [] for inputs that are not tensors."""
        return shapes_of(self.shapes)

    @cached_property
    def types(self) -> list[str]:
        """The op's input dtypes, as the profiler names them."""
        return dtypes_of(self.dtypes)


class Kernel(NamedTuple):
    """A launched kernel; `ops` are the names from the outermost op to the launching op."""

    label: str
    ops: list[str]
    shapes: str | None = None
    dtypes: str | None = None
    module: str | None = None
    source: str | None = None
    ns: int = 0
    window: int = 0  # the step's

    @property
    def path(self) -> str:
        """The ops as one text."""
        return " > ".join(self.ops)


class Call(msgspec.Struct, frozen=True):
    """Runtime calls with the same name below the same op; `copies` is the direction of the op's copy."""

    api: str
    cause: str  # synchronisation, allocator, compilation
    ms: float
    count: float
    ops: tuple[str, ...] = ()
    source: str | None = None
    region: str | None = None
    copies: str = ""

    @property
    def path(self) -> str:
        """The ops as one text."""
        return " > ".join(self.ops)


class HostWork(msgspec.Struct, frozen=True):
    """Time of host ops with the same name; the device is idle for `idle_ms` of it."""

    op: str
    ms: float
    idle_ms: float
    count: float
    numel: int = 0  # of its largest tensor
    source: str | None = None


class Double(msgspec.Struct, frozen=True):
    """Time of float64 ops with the same name on a CPU, and the source of most of it."""

    op: str
    ms: float
    source: str | None = None
    module: str | None = None


class Loop(msgspec.Struct, frozen=True):
    """A loop that calls ops on elements of tensors: iterations, calls, and `ms` with Python, per step.

    `own` is the share of each op's time in the ledger, `kernels` the time of device work by family. `typical`
    is the usual time of an op that computes, over that of one that takes an element; `largest` the usual
    number of elements that an op reads. Both are None if unknown. `backward_ms` is the part of `ms` that its
    backward pass takes.
    """

    ms: float
    iterations: float
    count: float
    own: dict[str, float]
    kernels: dict[str, float]
    launches: float = 0.0
    backward_ms: float = 0.0
    typical: float | None = None
    largest: int | None = None
    source: str | None = None


class FetchingCode(msgspec.Struct, frozen=True):
    """The share of a loader's time in the program's own code, and the line that takes most of it.

    The share is None if there are too few samples.
    """

    share: float | None
    source: str | None


class Made(msgspec.Struct, frozen=True):
    """Batches made by the thread of the training loop: milliseconds per step, also while a device is busy.

    `blocked` is the share of that time in system calls, `reading` in calls on files, `locked` in waits for
    other threads. `dwell_us` says how long the interpreter stays at one instruction: long in native code.
    `source` is the iterator's line, or the loop's if a library iterates. `threads` are torch's.
    """

    ms: float
    source: str
    blocked: float = 0.0
    reading: float = 0.0
    locked: float = 0.0
    dwell_us: float | None = None
    threads: int | None = None


class Preparation(msgspec.Struct, frozen=True):
    """Time that launching ops with the same name spend before they call the runtime, `idle_ms` of it with an
    idle device.

    `share` is the share of these ops' total time.
    """

    op: str
    ms: float
    idle_ms: float
    count: float  # calls with this time
    share: float
    source: str | None = None

    @property
    def without(self) -> str:
        """The change that removes this time from the ops."""
        return f'op:"{self.op}"={max(1.0 - self.share, 0.0):.4f}'


class Computing(msgspec.Struct, frozen=True):
    """Long stretches of the program's own Python, `count` per step; the device idles for `idle_ms` in them.

    `source` is the line that called the op before the longest stretch.
    """

    idle_ms: float
    count: float
    source: str | None = None


class HostLine(msgspec.Struct, frozen=True):
    """A row of the ledger that names a line.

    `own` is the share of its samples outside library code. `dwell_us` is the interpreter's time at one
    instruction of the line, and `around_us` of its whole function; both are long in native code and None if
    unknown. `saving` is the share of its samples beneath a function that writes a model's state. `caller`
    is the function that called it, as `name (file`, if it was the same in all samples.
    """

    entry: str
    detail: str
    ms: float
    function: str
    source: str
    own: float
    dwell_us: float | None = None
    around_us: float | None = None
    saving: float = 0.0
    caller: str | None = None


class LoaderRegions(msgspec.Struct, frozen=True):
    """Whether the program's own process loads batches (num_workers=0), and the line that fetches them.

    `first` is the share of the time that is for the first batches of loaders.
    """

    in_process: bool
    source: str | None = None
    first: float = 0.0


class DriverCalls(msgspec.Struct, frozen=True):
    """Calls that allocate or free memory of the driver, by the allocator's reason.

    `steps` is the share of steps with these calls, `ms` their host time per step.
    """

    why: str  # room, emptied, search, new
    frees: float
    asks: float
    ms: float
    steps: float
    source: str | None = None
    region: str | None = None


class Searches(msgspec.Struct, frozen=True):
    """Ops that time several kernels before using one: their name, `count` and `ms` per step."""

    ms: float
    count: float
    steps: float  # share of steps with any
    op: str
    source: str | None = None


class Holds(msgspec.Struct, frozen=True):
    """Pauses of a launching thread without any record, at least as long as the switch interval.

    `places` is the number of different ops before them, `on_turns` the share that ends with a switch of
    threads.
    """

    ms: float
    count: float
    places: int
    on_turns: float


class Rare(msgspec.Struct, frozen=True):
    """A step as long as the rare long ones, and its differences from other steps in milliseconds."""

    ms: float
    copied: float  # copies from the device
    copied_usually: float
    copied_bytes: float
    waits_ms: dict[str, float]
    source: str | None = None


class Stretched(msgspec.Struct, frozen=True):
    """Kernels lengthened by another process's time slice, and the total extra time per step."""

    ms: float
    count: float
    families: int


class Reserved(msgspec.Struct, frozen=True):
    """Peak allocated memory and memory reserved beyond it, in bytes; both also after a third of the run."""

    allocated: float
    unused: float
    unused_before: float


class Kept(msgspec.Struct, frozen=True):
    """Blocks of memory that a step allocates, and those that it has not freed at its end."""

    left: int = 0
    allocated: int = 0
    left_bytes: int = 0


class Prefix(msgspec.Struct, frozen=True):
    """Passes over a sequence, each a token longer; `works`: the ops of the passes, with calls per step."""

    lengths: list[int]  # tokens per sample of each recorded pass
    samples: int
    works: list[Work]
    within: bool  # the passes are parts of one step

    @property
    def grown(self) -> set[int]:
        """Sizes of dimensions that hold all tokens of a pass, of one sample or of all samples."""
        return {length * by for length in self.lengths for by in (1, self.samples)}


class Compiled(msgspec.Struct, frozen=True):
    """Compiled functions, with the number of versions of each function."""

    versions: dict[int, int]
    regions: float  # calls of compiled regions per step
    resumed: float  # of these, calls within another region, after a break of its graph
    between_ms: float  # per step: Python and guards on the host before resumed regions
    source: str | None = None
    lookups: float = 0.0  # per step: frames for which Dynamo searched a compiled version


class Traced(msgspec.Struct, frozen=True):
    """A frame that Dynamo traced: its FILE:LINE, and the reason for what happened to it."""

    function: str
    place: str
    why: str


class Broken(Traced, frozen=True):
    """A frame that Dynamo left uncompiled, or a graph break."""

    share: float = 0.0  # of the step's ops with a known source, those in this frame itself


class Recompiled(Traced, frozen=True):
    """A frame that Dynamo compiled again, at its first line; `why` is the guard that failed."""

    times: int = 0  # recompilations
    limited: bool = False  # it reached the limit: other values run uncompiled


class Captured(msgspec.Struct, frozen=True):
    """Recorded decode steps that ran as CUDA graphs, and those without."""

    graphed: int
    eager: int
    idle_share: float  # of the device's idle time, in steps without graphs
    each_ms: float  # of idle time in a step without a graph, beyond that in one with it
    saved_ms: float  # of this time, per step
    largest_graphed: int | None  # requests of a step; None if unknown
    smallest_eager: int | None


class Dequantised(msgspec.Struct, frozen=True):
    """Kernels that make float matrices of quantised weights, and the products that read these matrices."""

    works: list[Work]
    ms: float  # per step
    products_ms: float
    count: float  # of products, per step


class Product(msgspec.Struct, frozen=True):
    """A matrix product (m × k) · (k × n), `batch` times, of one work row."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    work: Work

    @property
    def sides(self) -> tuple[int, int, int]:
        """Rows, columns and depth."""
        return self.m, self.n, self.k

    @property
    def flops(self) -> float:
        """FLOPs per step."""
        return 2.0 * self.batch * self.m * self.n * self.k * self.work.count

    def ceiling(self, rates: dict[str, float]) -> float | None:
        """FLOP/s of tensor cores in its dtype; None if they were not measured."""
        return rates.get("matmul.tf32" if self.dtype == "fp32" else f"matmul.{self.dtype}")


class Chain(msgspec.Struct, frozen=True):
    """Consecutive kernels over `numel` elements, `count` times; `saved`: ms that fusion saves, by family."""

    ops: tuple[str, ...]
    ms: float
    saved: dict[str, float]
    count: float
    numel: int
    last: int  # length of the last dimension
    source: str | None = None
    module: str | None = None
    backward: bool = False

    @property
    def saved_ms(self) -> float:
        """The time saved over all families."""
        return sum(self.saved.values())


class Eager(msgspec.Struct, frozen=True):
    """The part of a step in eager mode that torch.compile would remove.

    `saved` is the time that fusion saves by family. `before` and `after` are the numbers of kernels that fuse
    and of fused kernels, `chains` of runs of two or more. `host` is a factor on host time, of which the
    optimizer, which stays as it is, has the share `optimizer`. `ops` launch the chain that saves most.
    """

    saved: dict[str, float]
    fusible_ms: float
    before: float
    after: float
    chains: float
    ops: tuple[str, ...] = ()
    host: float = 1.0
    optimizer: float = 0.0
    source: str | None = None
    module: str | None = None

    @property
    def saved_ms(self) -> float:
        """The time saved over all families."""
        return sum(self.saved.values())


class Interpreted(msgspec.Struct, frozen=True):
    """The part of a step in eager mode on a processor that torch.compile would remove.

    `ops` are shares of the time of each op, `python` is that of the time between ops, less the cost of guards
    and generated calls. `before` is the number of ops that fuse, `after` that of generated and kept calls.
    """

    ops: dict[str, float]
    python: float
    before: int
    after: int


class Optimizers(msgspec.Struct, frozen=True):
    """Adam's `share` of a clean step, by `samples` of stacks, and of the time `between` ops."""

    share: float
    samples: int
    between: float


class Usage(msgspec.Struct, frozen=True):
    """The operating system's counts for the thread that runs the clean steps: shares of time, or per step.

    `system` is the thread's system time, counted in so many `ticks`, `ready` time without a free processor.
    `faults` are page faults that read no storage, each of which takes `fault_ns` by measurement. `grown` is
    the growth of resident memory in bytes. None: not counted.
    """

    system: float
    faults: float
    ticks: float
    grown: float | None
    ready: float | None
    fault_ns: float | None = None


class Tables(msgspec.Struct, frozen=True):
    """Embedding tables of one shape: their number (`parameters`), and the rows that a step looks up in all.

    `works` pass over every row: zeroing the gradient, and the tables' share of the optimizer.
    """

    rows: int
    width: int
    parameters: int
    lookups: float
    works: list[Work]
    source: str | None = None
    module: str | None = None

    @property
    def ms(self) -> float:
        """The time of all this work."""
        return sum(work.ms for work in self.works)

    @property
    def touched(self) -> float:
        """Upper bound on the share of rows that a step looks up, because it may look up a row twice."""
        return min(self.lookups / (self.parameters * self.rows), 1.0)


class Repeated(msgspec.Struct, frozen=True):
    """Large reductions of one size that every micro-step repeats."""

    operation: str
    bytes: float
    micro_steps: int  # in a step
    count: float  # per step
    ms: float  # per step
    families: tuple[str, ...]


class SmallMessages(msgspec.Struct, frozen=True):
    """Small collectives of one operation that follow each other without compute between them."""

    operation: str
    dtype: str
    bytes: float  # of all, per step
    count: float  # per step
    runs: float  # uninterrupted runs of them, per step
    ms: float  # of all, per step
    fixed: float  # share of their time that does not depend on their size
    families: tuple[str, ...]
    exposed_ms: float = 0.0  # time per step that runs on host threads take from the threads that call them
    source: str | None = None  # the line that calls most of them

    @property
    def saved(self) -> float:
        """The share of their time that merging each run saves."""
        return self.fixed * (1 - self.runs / self.count)


class Skew(msgspec.Struct, frozen=True):
    """Waits of a rank for later ranks at the reductions of micro-steps; times per step."""

    ms: float  # with a reduction in each micro-step
    once_ms: float  # with one per step, where a rank that was late in one micro-step may catch up in another


class Lead(msgspec.Struct, frozen=True):
    """Time per step that the others spend in collectives beyond the rank that arrives last.

    Steps of all ranks are equally long, so it is also what the late rank's other work takes longer. `claims`
    are the rows of this rank's ledger that hold the time.
    """

    ms: float
    claims: list[Claim]


class Family(msgspec.Struct, frozen=True):
    """A kernel family with hardware counters: its measures by name, and its limit."""

    name: str
    ms: float
    bound: str
    used: float | None
    measures: dict[str, float]


class Sensors(msgspec.Struct, frozen=True):
    """Sensors of a device while it was busy: medians, and the share of time by throttle reason."""

    sm_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    throttled: dict[str, float]
    samples: int
