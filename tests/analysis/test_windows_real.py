"""Windows and sums of real traces: against the figures that came with them, and a count of their events."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from functools import cache

import pytest

from fathom.analysis.results import Device
from tests.support.examined import of_trace, on_trace, on_traces
from tests.support.paths import TRACES

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")

WINDOWS_MS = {
    "ns-resolution-rank0": [101, 96, 96, 96, 95],
    "diff-test": [118, 117, 115, 123, 117, 116],
    "h100-owlv2": [1211],
}
ALL = [*WINDOWS_MS, "diff-control", "h100-qwen-0.5b", "b200-eager", "vllm-piecewise-graph"]
PRIORITY = ("compute", "communication", "copy", "idle")


def device(name: str) -> Device:
    (result,) = of_trace(name).devices
    return result


@pytest.mark.parametrize("name", on_traces(WINDOWS_MS))
def test_windows_are_as_the_traces_came_with(name: str) -> None:
    lengths = [round((window.end_ns - window.start_ns) / 1e6) for window in device(name).windows]
    assert lengths == WINDOWS_MS[name]


@pytest.mark.parametrize("name", on_traces(ALL))
def test_windows_tile_and_entries_sum_to_them(name: str) -> None:
    result = device(name)
    pairs = zip(result.windows, result.windows[1:], strict=False)
    assert all(item.end_ns == other.start_ns for item, other in pairs)
    used = [window.end_ns - window.start_ns for window in result.windows if window.used]
    assert sum(entry.ns for entry in result.ledger) == sum(used) > 0
    assert result.total_ms == pytest.approx(sum(used) / len(used) / 1e6)
    assert sum(entry.ms for entry in result.ledger) == pytest.approx(result.total_ms)


@pytest.mark.parametrize("name", on_traces(ALL))
def test_times_agree_with_a_count_of_the_traces_events(name: str) -> None:
    result = device(name)
    counted: Counter[str] = Counter()
    for window in result.windows:
        if window.used:
            counted += count(name, window.start_ns, window.end_ns)
    counts: Counter[str] = Counter()
    for entry in result.ledger:
        waiting = entry.detail == "before a receive"
        counts["idle" if waiting else entry.entry.partition(":")[0]] += entry.ns
    for entry in PRIORITY:
        assert abs(counts[entry] - counted[entry]) <= 1000, entry


@pytest.mark.parametrize("name", on_traces([*WINDOWS_MS, "diff-control"]))
def test_little_of_a_marked_trace_is_unexplained(name: str) -> None:
    result = device(name)
    unexplained = sum(entry.ms for entry in result.ledger if entry.entry == "idle: unexplained")
    assert unexplained < 0.03 * (result.total_ms or 0)


@on_trace("h100-owlv2")
def test_a_starved_trace_says_so() -> None:
    """OWLv2 waits for its loader for more than half of the step: its annotations add up to 619 ms."""
    waited = sum(entry.ms for entry in device("h100-owlv2").ledger if entry.entry == "idle: input")
    assert waited == pytest.approx(annotated_ms("h100-owlv2", "enumerate(DataLoader)"), rel=0.02)


@cache
def trace(name: str) -> tuple[int, list[dict]]:
    """The nanosecond that times count from, and the events; fractions stay text, so that none is rounded."""
    with gzip.open(TRACES / f"{name}.json.gz") as file:
        content = json.load(file, parse_float=str)
    return int(content.get("baseTimeNanoseconds", 0)), content["traceEvents"]


@cache
def device_events(name: str) -> list[tuple[int, int, str]]:
    classes = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
    base, events = trace(name)
    result = []
    for event in events:
        if event.get("cat") in classes and event.get("ph") == "X":
            start = base + int(Decimal(event["ts"]) * 1000)
            collective = any(word in event["name"].lower() for word in ("nccl", "multimem_all_reduce"))
            kind = "communication" if collective else classes[event["cat"]]
            result.append((start, start + int(Decimal(event["dur"]) * 1000), kind))
    return result


def count(name: str, low: int, high: int) -> Counter[str]:
    """Nanoseconds of [low, high) by the first class that runs, walking from event to event."""
    changes: list[tuple[int, str, int]] = []
    for start, end, kind in device_events(name):
        if end > low and start < high and end > start:
            changes += [(max(start, low), kind, 1), (min(end, high), kind, -1)]
    running: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    now = low
    for time, kind, change in sorted(changes):
        state = next((item for item in PRIORITY if running[item] > 0), "idle")
        counts[state] += time - now
        now = time
        running[kind] += change
    counts["idle"] += high - now
    return counts


def annotated_ms(name: str, prefix: str) -> float:
    return sum(float(e["dur"]) for e in trace(name)[1] if str(e.get("name")).startswith(prefix)) / 1000
