"""JSON of rocprofv3 (`--output-format json`): one trace per process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from fathom.errors import file_errors, unimportable
from fathom.regular import open_regular, read_regular
from fathom.sounding.events import Events, Origin, Trace, is_pid, listed_gpu, normalised
from fathom.sounding.events.arrays import integers
from fathom.sounding.rocprof.common import LAUNCHES, MARKERS, NO_CALLS, NO_REGIONS, copy_name, dims, stream
from fathom.units import GIB

KEY = b'"rocprofiler-sdk-tool"'
_MOST = 1 * GIB  # bytes: the whole document is decoded at once
_HEAD = 4096
MOST_PROCESSES = 256  # of one host
_GPU = 2  # type of an agent
_KINDS = ("hip_api", "hsa_api", "marker_api", "rccl_api")


class Handle(msgspec.Struct, frozen=True):
    """The id of an agent, a queue or a stream."""

    handle: int | None = None


class Correlation(msgspec.Struct, frozen=True):
    """Ids that a call shares with its work."""

    internal: int | None = None


class Size(msgspec.Struct, frozen=True):
    """Work-items in three dimensions."""

    x: int = 1
    y: int = 1
    z: int = 1


class Dispatch(msgspec.Struct, frozen=True):
    """The launch of a kernel."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int | None = None
    private_segment_size: int | None = None
    group_segment_size: int | None = None
    workgroup_size: Size = Size()
    grid_size: Size = Size()


class Record(msgspec.Struct, frozen=True):
    """One call, range, kernel or copy."""

    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    correlation_id: Correlation = Correlation()
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle = Handle()
    dst_agent_id: Handle = Handle()
    src_agent_id: Handle = Handle()
    bytes: int | None = None


class Agent(msgspec.Struct, frozen=True):
    """One processor."""

    id: Handle = Handle()
    type: int | None = None
    node_id: int | None = None
    name: str = ""
    product_name: str = ""


class Symbol(msgspec.Struct, frozen=True):
    """One kernel's names."""

    kernel_id: int | None = None
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Kind(msgspec.Struct, frozen=True):
    """A kind of record: its name, and those of its operations by number."""

    kind: str = ""
    operations: list[str] = []


class Message(msgspec.Struct, frozen=True):
    """The text of a range, by its correlation."""

    key: int | None = None
    value: str = ""


class Strings(msgspec.Struct, frozen=True):
    """The names that records refer to by number."""

    buffer_records: list[Kind] = []
    marker_api: list[Message] = []


class Buffers(msgspec.Struct, frozen=True):
    """The records."""

    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    hsa_api: list[Record] = []
    marker_api: list[Record] = []
    rccl_api: list[Record] = []


class Process(msgspec.Struct, frozen=True):
    """The results of one process."""

    metadata: dict[str, object] = {}
    agents: list[Agent] = []
    strings: Strings = Strings()
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = Buffers()


class Document(msgspec.Struct, frozen=True):
    """The whole file."""

    processes: list[Process] = msgspec.field(name="rocprofiler-sdk-tool")


def is_document(path: Path) -> bool:
    """Return whether a file begins like a JSON document of rocprofv3."""
    try:
        with open_regular(path) as file:
            return KEY in file.read(_HEAD)
    except OSError:
        return False


def read_document(path: Path, step_range: str | None = None) -> list[Trace]:
    """Return one trace per process with device work. Raises BadInputError if there is none, or damage."""
    try:
        with file_errors(path):
            document = msgspec.json.decode(read_regular(path, _MOST), type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unimportable(path, f"it is not a valid result of rocprofv3 ({error})") from None
    if (count := len(document.processes)) > MOST_PROCESSES:
        why = f"it holds {count:,} processes, and one host runs at most {MOST_PROCESSES}"
        raise unimportable(path, why)
    every = [_events(process) for process in document.processes if process.buffer_records.kernel_dispatch]
    if not every:
        raise unimportable(path, "it has no kernel dispatches; record with `rocprofv3 --kernel-trace`")
    return [normalised(events, step_range) for events in every]


def _events(process: Process) -> Events:
    gpus = [agent for agent in process.agents if agent.type == _GPU]
    gpus.sort(key=lambda agent: agent.node_id or 0)
    devices = {agent.id.handle: place for place, agent in enumerate(gpus)}
    kernels = pl.concat([_kernels(process, devices), _copies(process, devices)], how="diagonal")
    calls = _calls(process)
    launches = calls.filter(pl.col("category").str.contains(LAUNCHES)).rename({"name": "api"})
    ranges = calls.filter(pl.col("category").str.contains(MARKERS), pl.col("end_ns") > pl.col("start_ns"))
    lacking = [*([NO_REGIONS] if ranges.is_empty() else []), *([NO_CALLS] if launches.is_empty() else [])]
    tables = {"ops": _messages(ranges, process), "launches": launches.drop("category"), "kernels": kernels}
    return Events(tables, _origin(process, gpus, kernels), abstained=lacking)


def _kernels(process: Process, devices: dict[int | None, int]) -> pl.DataFrame:
    names = {s.kernel_id: s.formatted_kernel_name or s.kernel_name or None for s in process.kernel_symbols}
    rows = []
    for record in process.buffer_records.kernel_dispatch:
        launch = record.dispatch_info
        grid, block = launch.grid_size, launch.workgroup_size
        rows.append(
            (
                *_common(record), devices.get(launch.agent_id.handle), record.stream_id.handle,
                launch.queue_id.handle, names.get(launch.kernel_id), launch.group_segment_size,
                launch.private_segment_size, grid.x, grid.y, grid.z, block.x, block.y, block.z,
            )
        )  # fmt: skip
    columns = (*_COMMON, "device", "stream_id", "queue_id", "name", "shared_bytes", "local_bytes",
               "gx", "gy", "gz", "bx", "by", "bz")  # fmt: skip
    frame = _frame(rows, columns).with_columns(
        stream(),
        kind=pl.lit("compute"),
        grid=dims(["gx", "gy", "gz"], ["bx", "by", "bz"]),
        block=dims(["bx", "by", "bz"]),
    )
    return frame.drop("gx", "gy", "gz", "bx", "by", "bz", "stream_id", "queue_id", "thread")


def _copies(process: Process, devices: dict[int | None, int]) -> pl.DataFrame:
    operations = _operations(process)
    rows = [
        (
            *_common(record),
            devices.get(record.dst_agent_id.handle, devices.get(record.src_agent_id.handle)),
            record.stream_id.handle or 0,
            operations(record)[1],
            record.bytes,
        )
        for record in process.buffer_records.memory_copy
    ]
    frame = _frame(rows, (*_COMMON, "device", "stream", "operation", "bytes"))
    return frame.with_columns(kind=pl.lit("copy"), name=copy_name("operation")).drop("operation", "thread")


def _calls(process: Process) -> pl.DataFrame:
    operations = _operations(process)
    records = [record for kind in _KINDS for record in getattr(process.buffer_records, kind)]
    rows = [(*_common(record), *operations(record)) for record in records]
    return _frame(rows, (*_COMMON, "category", "name"))


_COMMON = ("thread", "correlation", "start_ns", "end_ns")
_TEXTS = ("name", "category", "operation")


def _common(record: Record) -> tuple[int | None, ...]:
    return (
        record.thread_id,
        record.correlation_id.internal or None,
        record.start_timestamp,
        record.end_timestamp,
    )


def _frame(rows: list[Any], columns: tuple[str, ...]) -> pl.DataFrame:
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    return pl.DataFrame(
        [
            pl.Series(name, own, pl.String) if name in _TEXTS else integers(name, own)
            for name, own in zip(columns, values, strict=True)
        ]
    )


def _operations(process: Process) -> Any:
    """Return a function from a record to the names of its kind and operation, None if unknown."""
    kinds = process.strings.buffer_records

    def names(record: Record) -> tuple[str | None, str | None]:
        if record.kind is None or not 0 <= record.kind < len(kinds):
            return None, None
        kind, number = kinds[record.kind], record.operation
        known = number is not None and 0 <= number < len(kind.operations)
        return kind.kind, kind.operations[number] if known else None  # type: ignore[index]

    return names


def _messages(ranges: pl.DataFrame, process: Process) -> pl.DataFrame:
    """Return the ranges with the program's own names, which are kept by correlation."""
    texts = {message.key: message.value for message in process.strings.marker_api if message.key}
    own = pl.col("correlation").replace_strict(texts, default=None, return_dtype=pl.String)
    named = ranges.with_columns(name=pl.coalesce(own, "name"), kind=pl.lit("annotation"))
    return named.drop("category", "correlation")


def _origin(process: Process, gpus: list[Agent], kernels: pl.DataFrame) -> Origin:
    used = kernels["device"].drop_nulls().unique().sort().to_list()
    names = {device: gpus[device].product_name or gpus[device].name for device in used}
    pid = process.metadata.get("pid")
    entries = [listed_gpu(device, name) for device, name in names.items()]
    return Origin(pid if isinstance(pid, int) and is_pid(pid) else None, None, None, None, names, entries, {})
