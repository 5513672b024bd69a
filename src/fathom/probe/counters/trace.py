"""Records of a burst, written as Kineto writes traces: one event after the other, for there may be many."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fathom.probe.counters import records
from fathom.probe.counters.calls import CHOSEN
from fathom.probe.counters.launches import Call, Work
from fathom.probe.whole import whole

Record = tuple[int, int]  # kind, address
_WORK = {records.KERNEL: "kernel", records.COPY: "copy", records.SET: "set"}
_BLOCKING = (2, 1)  # to the host, in pageable memory


def work_of(found: Iterable[Record]) -> list[Work]:
    """The device's work, in the order of records."""
    return [_work(kind, records.fields(kind, address)) for kind, address in found if kind in _WORK]


def _work(kind: int, one: dict[str, int]) -> Work:
    name = one.get("name", 0)
    blocks = kind == records.COPY and (one["copy"], one["target"]) == _BLOCKING
    times = one["start"], one["end"], one.get("queued", 0), one.get("submitted", 0)
    return Work(one["correlation"], _WORK[kind], name, *times, one["node"], blocks)


def calls_of(found: Iterable[Record], names: dict[int, str]) -> list[Call]:
    """The runtime's calls and synchronisations; those that CUPTI should not have recorded are left out."""
    made = []
    for kind, address in found:
        if kind not in (records.RUNTIME, records.SYNC):
            continue
        one = records.fields(kind, address)
        known = names if kind == records.RUNTIME else records.SYNCS
        name = known.get(one["call"], "")
        if CHOSEN.search(name):
            made.append(Call(one["correlation"], name, one.get("thread", 0), one["start"], one["end"]))
    return made


def write(
    path: str,
    found: Callable[[], Iterator[Record]],
    work: list[Work],
    calls: list[Call],
    thread: int,
    skip: int,
) -> int:
    """Write work and calls to `path`; nothing of the correlation `skip`. Returns how many events."""
    base = min([one.start for one in work] + [call.start for call in calls], default=0)
    count = 0
    with whole(path) as part, open(part, "w", encoding="utf-8") as file:
        file.write(f'{{"baseTimeNanoseconds": {base}, "traceEvents": [')
        for event in _events(found(), calls, thread):
            if event["args"]["correlation"] == skip:
                continue
            event["ts"], event["dur"] = (event["ts"] - base) / 1e3, event["dur"] / 1e3
            file.write((",\n" if count else "\n") + json.dumps(event))
            count += 1
        file.write("\n]}")
    return count


def _events(found: Iterator[Record], calls: list[Call], thread: int) -> Iterator[dict[str, Any]]:
    for kind, address in found:
        if kind in _WORK:
            yield records.event(kind, address)
    for one in calls:
        yield records.call(one.name, one.thread or thread, one.start, one.end, one.correlation)
