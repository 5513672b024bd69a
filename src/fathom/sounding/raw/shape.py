"""The shape of raw records. Records of another shape are damaged and left out; further keys are allowed."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import polars as pl
from msgspec import Meta

from fathom.errors import FathomError
from fathom.machine import require_machine
from fathom.sounding.manifest import Counted, LoaderFacts
from fathom.sounding.schema import MOST_COUNT, MOST_NS, TABLES

Time = Annotated[int, Meta(ge=-MOST_NS, le=MOST_NS)]
Count = Annotated[int, Meta(ge=-MOST_COUNT, le=MOST_COUNT)]
Index = Annotated[int, Meta(ge=-1, le=4095)]
Rank = Annotated[int, Meta(ge=0, le=999_999)]
Burst = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
File = Annotated[str, Meta(pattern=r"^[\w.-]{1,255}$")]  # beside the records, never a path


class ProcessShape(msgspec.Struct):
    """The first record of a process."""

    pid: Count | None = None
    rank: Rank | None = None
    world: Count | None = None
    program: str | None = None
    role: str | None = None
    host: str | None = None
    python: str | None = None
    versions: dict[str, str] | None = None
    devices: dict[Index, str] | None = None


class ClockShape(msgspec.Struct):
    """The source of steps from step k on."""

    source: str
    k: Count


class MarksShape(msgspec.Struct):
    """A run of marks."""

    k: Count
    ns: list[Time | None]
    source: str | None = None
    thread: int | None = None
    phase: str | None = None
    burst: Burst | None = None
    kind: str | None = None
    samples: Count | None = None
    tokens: Count | None = None
    stream: int | None = None
    query: Count | None = None


class MicroShape(msgspec.Struct):
    """The start of a micro-step."""

    k: Count
    ns: Time
    source: str | None = None
    thread: int | None = None


class DeviceShape(msgspec.Struct):
    """Device events of a clean burst."""

    burst: Burst
    marks: list[tuple[Count, Time]] = []


class TraceShape(msgspec.Struct):
    """A saved burst of the timeline."""

    phase: str
    burst: Burst
    file: File
    k0: Count
    k1: Count | None = None
    way: str | None = None
    clock: Any = None


class BurstShape(msgspec.Struct):
    """The burst that was a rehearsal."""

    burst: Burst


class StepShape(msgspec.Struct):
    """A step from which on something holds."""

    k: Count


class StretchShape(msgspec.Struct):
    """A wait or a region."""

    start: Time
    end: Time
    thread: int | None = None
    name: str | None = None
    cause: str | None = None
    detail: str | None = None


class RegionShape(StretchShape, kw_only=True):
    """A region, which has a name."""

    name: str


class MemoryShape(msgspec.Struct):
    """Totals of the allocator."""

    ns: Time
    device: Index
    allocated: Count | None = None
    reserved: Count | None = None
    peak_allocated: Count | None = None
    peak_reserved: Count | None = None


class SnapshotShape(msgspec.Struct):
    """The allocator's events of one step."""

    device: Index
    events: list[tuple[Time, str, Count]] = []


class HeldShape(msgspec.Struct):
    """Tensors that optimizers hold: address, bytes, device, category."""

    ns: Time
    moment: str
    tensors: list[tuple[int, Count, int, str]] = []


class UsageShape(msgspec.Struct):
    """The operating system's counts for the thread that runs the steps, in a stretch of them."""

    start: Time
    end: Time
    steps: Count
    thread: int | None = None
    user: Count | None = None
    system: Count | None = None
    ready: Count | None = None
    faults: Count | None = None
    loads: Count | None = None
    preempted: Count | None = None
    resident: int | None = None
    fault: Count | None = None


class BatchShape(msgspec.Struct):
    """A batch, as the program received it or as a worker made it."""

    start: Time
    loader: Count | None = None
    batch: Count | None = None
    worker: Count | None = None
    pid: Count | None = None
    epoch: Count | None = None
    nth: Count | None = None
    wait: Time | None = None
    fetch: Time | None = None
    collate: Time | None = None
    pin: Time | None = None
    read: Time | None = None
    decode: Time | None = None
    cpu_wait: Time | None = None
    read_bytes: Count | None = None
    threads: Count | None = None


class RequestShape(msgspec.Struct):
    """A request that an engine answered."""

    request: Count
    arrival: Time
    submitted: Time
    end: Time
    token: Time | None = None
    sent: Time | None = None
    prompt: Count | None = None
    cached: Count | None = None
    repeated: Count | None = None
    generated: Count | None = None
    chunks: Count | None = None
    status: Annotated[int, Meta(ge=0, le=999)] | None = None
    key: str | None = None


class HandedShape(msgspec.Struct):
    """A request that an HTTP server handed to an engine in another process, which has it by this key."""

    request: Count
    key: str
    arrival: Time
    handed: Time
    end: Time
    sent: Time | None = None
    chunks: Count | None = None
    status: Annotated[int, Meta(ge=0, le=999)] | None = None


class SpanShape(msgspec.Struct):
    """Something that took a request's time."""

    request: Count
    what: str
    start: Time
    end: Time


class IterationShape(msgspec.Struct):
    """An iteration of an engine; a turn is [request, phase, tokens, tokens generated]."""

    start: Time
    end: Time
    kind: str
    turns: list[tuple[Count, Annotated[int, Meta(ge=0, le=2)], Count, Count]]
    prepared: Time | None = None
    computed: Time | None = None
    sampled: Time | None = None
    waiting: Count | None = None
    kv_used: Count | None = None
    kv_total: Count | None = None
    kv_block: Count | None = None


Number = Annotated[int, Meta(ge=0, le=MOST_COUNT)]


class SummaryShape(msgspec.Struct):
    """A window of counted steps; each kind has [name, steps, samples, tokens, waits, bins]."""

    k: Count
    n: Number
    start: Time
    end: Time
    kinds: list[
        tuple[str, Number, Count | None, Count | None, dict[str, Number], list[tuple[Number, Number, Number]]]
    ]
    source: str | None = None
    thread: int | None = None
    burst: Burst | None = None


class NoteShape(msgspec.Struct):
    """A message for the user."""

    what: str
    text: str


class LaunchShape(msgspec.Struct):
    """The file `launch.json`."""

    name: str | None = None
    command: list[str] | None = None
    origin: str | None = None
    start_ns: Time | None = None
    environment: dict[str, str] | None = None
    settings: dict[str, str] | None = None
    machine: dict[str, object] | None = None


class AbstainedShape(msgspec.Struct):
    """An analysis that was skipped."""

    what: str
    why: str


class EndShape(msgspec.Struct):
    """The file `end.json`."""

    exit_status: Count | None = None
    ended: str | None = None
    abstained: list[AbstainedShape] | None = None


class FramesShape(msgspec.Struct):
    """The file `frames-PID.json`."""

    standard: list[str] = []
    fathom: str | None = None


class IteratorsShape(msgspec.Struct):
    """The file `iterators-PID.json`."""

    generators: list[list[str]] | None = None
    threads: Count | None = None


Sample = tuple[Time, bool | None, str | None, Number]


class StretchOfSamples(msgspec.Struct):
    """A burst of samples of stacks."""

    start_ns: Time
    end_ns: Time
    samples: Count = 0
    dropped: Count = 0


STACKS: dict[str, object] = {
    "frames": list[tuple[str, str, Count]],
    "stacks": list[list[Number]],
    "samples": list[Sample],
    "looked": list[list[bool | float | None]],
}


RECORDS: dict[str, object] = {
    "process": ProcessShape,
    "clock": ClockShape,
    "marks": MarksShape,
    "micro": MicroShape,
    "device": DeviceShape,
    "trace": TraceShape,
    "rehearsal": BurstShape,
    "resettled": StepShape,
    "wait": StretchShape,
    "region": RegionShape,
    "memory": MemoryShape,
    "snapshot": SnapshotShape,
    "held": HeldShape,
    "usage": UsageShape,
    "batch": BatchShape,
    "request": RequestShape,
    "handed": HandedShape,
    "span": SpanShape,
    "iteration": IterationShape,
    "summary": SummaryShape,
    "note": NoteShape,
    "dynamo": Counted,
    "loader": LoaderFacts,
}
FILES: dict[str, object] = {"launch.json": LaunchShape, "end.json": EndShape}
_KINDS: dict[Any, Any] = {pl.String: str, pl.Boolean: bool}


def _of_table(name: str) -> Any:
    kinds = {
        column: _KINDS.get(kind, float if kind.is_float() else Count) for column, kind in TABLES[name].items()
    }
    times = {column: Time for column in kinds if column.endswith("_ns")}
    return msgspec.defstruct(name, [(column, kind | None, None) for column, kind in (kinds | times).items()])


TELEMETRY = _of_table("telemetry")


def checked(record: Any, shape: Any) -> Any:
    """Return the record in its shape. Raises msgspec.ValidationError, a ValueError, if it has another."""
    return msgspec.convert(record, shape, str_keys=True)


def checked_file(name: str, content: dict[str, object]) -> dict[str, object]:
    """Return the content of `launch.json` or `end.json`. Raises ValueError if it has another shape."""
    checked(content, FILES[name])
    try:
        require_machine(content.get("machine") or {}, name)
    except FathomError as error:
        raise ValueError(str(error)) from None
    return content
