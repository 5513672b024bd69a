"""Write a burst's records in Kineto's format, one event at a time to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fathom.atomic import atomic_write
from fathom.pristine import json, open
from fathom.probe.counters import records
from fathom.probe.counters.calls import CHOSEN
from fathom.probe.counters.launches import RuntimeCall, WorkItem

Record = tuple[int, int]  # kind, address
_WORK = {records.KERNEL: "kernel", records.COPY: "copy", records.SET: "set"}
_BLOCKING = (2, 1)  # a copy to the host, into pageable memory


def work_of(burst: Iterable[Record]) -> list[WorkItem]:
    """Return the device's work, in the order of records."""
    return [_work(kind, records.fields(kind, address)) for kind, address in burst if kind in _WORK]


def _work(kind: int, fields: dict[str, int]) -> WorkItem:
    blocks = kind == records.COPY and (fields["copy"], fields["target"]) == _BLOCKING
    times = fields["start"], fields["end"], fields.get("queued", 0), fields.get("submitted", 0)
    name, node = fields.get("name", 0), fields["node"]
    return WorkItem(fields["correlation"], _WORK[kind], name, *times, node, blocks)


def calls_of(burst: Iterable[Record], names: dict[int, str]) -> list[RuntimeCall]:
    """Return runtime calls, without unwanted calls that CUPTI recorded anyway."""
    calls = []
    for kind, address in burst:
        if kind != records.RUNTIME:
            continue
        call = records.fields(kind, address)
        name = names.get(call["call"], "")
        if CHOSEN.search(name):
            calls.append(RuntimeCall(call["correlation"], name, call["thread"], call["start"], call["end"]))
    return calls


def write(
    path: str,
    burst: Callable[[], Iterator[Record]],
    work: list[WorkItem],
    calls: list[RuntimeCall],
    thread: int,
    skip: int,
) -> int:
    """Write work and calls to `path`, except those with correlation `skip`. Return the number of events."""
    base = min([item.start for item in work] + [call.start for call in calls], default=0)
    count = 0
    with atomic_write(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(f'{{"baseTimeNanoseconds": {base}, "traceEvents": [')
        for event in _events(burst(), calls, thread):
            if event["args"]["correlation"] == skip:
                continue
            event["ts"], event["dur"] = (event["ts"] - base) / 1e3, event["dur"] / 1e3
            file.write((",\n" if count else "\n") + json.dumps(event))
            count += 1
        file.write("\n]}")
    return count


def _events(burst: Iterator[Record], calls: list[RuntimeCall], thread: int) -> Iterator[records.Event]:
    for kind, address in burst:
        if kind in _WORK:
            yield records.event(kind, address)
    for call in calls:
        yield records.call(call.name, call.thread or thread, call.start, call.end, call.correlation)
