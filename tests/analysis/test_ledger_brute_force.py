"""The ledger of random small timelines against a reference that looks at every nanosecond on its own."""

from __future__ import annotations

import tempfile
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.results import Device
from tests.support.timelines import DEFAULT_STREAM, ENGINE, MAIN, OTHER, Timeline, devices_of

SPAN = 120
ORDER = ("checkpoint", "compilation", "input", "gc", "synchronisation", "allocator", "dispatching")
CALLS = {
    "cudaMalloc": "allocator",
    "cudaStreamSynchronize": "synchronisation",
    "cudaEventQuery": "dispatching",
}
CLASSES = {"compute": "compute", "collective": "communication", "copy": "copy", "set": "copy"}

starts = st.integers(0, SPAN)
lengths = st.integers(1, 25)
threads = st.sampled_from([MAIN, MAIN, ENGINE, OTHER])


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    made = Timeline()
    marks = sorted(draw(st.lists(starts, min_size=2, max_size=5, unique=True)))
    made.steps(*marks)
    for _ in range(draw(st.integers(0, 8))):
        start, kind = draw(starts), draw(st.sampled_from(list(CLASSES)))
        launched = draw(st.none() | st.integers(max(0, start - 30), start))
        name = draw(st.sampled_from(["a", "b", "ncclRecv" if kind == "collective" else "c"]))
        stream = draw(st.sampled_from([DEFAULT_STREAM, 9]))
        made.kernel(
            start, start + draw(lengths), launched, name=name, kind=kind, stream=stream, thread=draw(threads),
            direction=name,
        )  # fmt: skip
    for _ in range(draw(st.integers(0, 4))):
        start = draw(starts)
        cause = draw(st.sampled_from(["input", "gc", "checkpoint", "compile"]))
        made.wait(cause, start, start + draw(lengths), draw(threads))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(starts)
        made.call(draw(st.sampled_from(list(CALLS))), start, start + draw(lengths), draw(threads))
    for _ in range(draw(st.integers(0, 4))):
        start, thread = draw(starts), draw(threads)
        name = "autograd::engine::evaluate_function: X" if thread == ENGINE else "aten::mm"
        made.op(name, start, start + draw(lengths), thread)
    return made


class Reference:
    """The design's sentences, one instant at a time."""

    def __init__(self, made: Timeline) -> None:
        rows = {name: made.tables.get(name, []) for name in ("steps", "kernels", "launches", "waits", "ops")}
        self.rows: dict[str, list[dict[str, Any]]] = rows
        self.calls = {row["correlation"]: row for row in rows["launches"] if row["correlation"] is not None}
        first = min(self.calls, default=None)
        for kernel in rows["kernels"]:
            call = self.calls.get(kernel["correlation"])
            before = call is None and first is not None and kernel["correlation"] < first
            kernel["thread"] = call["thread"] if call else None
            kernel["known"] = before or call is not None
            kernel["launched"] = call["start_ns"] if call else -(10**9) if before else kernel["start_ns"]
        self.usual = self._usual()

    def _usual(self) -> int | None:
        time = Counter[int]()
        computing = [k for k in self.rows["kernels"] if k["kind"] == "compute"] or self.rows["kernels"]
        for kernel in computing:
            time[kernel["stream"]] += kernel["end_ns"] - kernel["start_ns"]
        return min(time, key=lambda stream: (-time[stream], stream), default=None)

    def windows(self) -> list[tuple[int, int]]:
        marks = [row["mark_ns"] for row in self.rows["steps"]] + [self.rows["steps"][-1]["end_ns"]]
        on_default = any(kernel["stream"] == DEFAULT_STREAM for kernel in self.rows["kernels"])
        stream = DEFAULT_STREAM if on_default else self.usual
        bounds = []
        for mark in marks:
            ends = [
                k["end_ns"] for k in self.rows["kernels"] if k["stream"] == stream and k["launched"] < mark
            ]
            bounds.append(max([mark, *ends]))
        return list(pairwise(bounds))

    def account(self, window: tuple[int, int]) -> Counter:
        """(entry, detail) to nanoseconds, as fractions where pieces share an instant."""
        counter: Counter = Counter()
        for t in range(*window):
            running = [k for k in self.rows["kernels"] if k["start_ns"] <= t < k["end_ns"]]
            for entry in ("compute", "communication", "copy"):
                mine = [k for k in running if CLASSES[k["kind"]] == entry]
                for kernel in mine:
                    counter[entry, "set" if kernel["kind"] == "set" else kernel["name"]] += Fraction(
                        1, len(mine)
                    )
                if mine:
                    break
            else:
                counter[self.idle(t)] += 1
        return counter

    def idle(self, t: int) -> tuple[str, str]:
        later = [k for k in self.rows["kernels"] if k["start_ns"] > t]
        begun = max([k["end_ns"] for k in self.rows["kernels"] if k["end_ns"] <= t], default=-(10**8))
        if not later:
            return self.host(MAIN, t)
        item = min(later, key=lambda k: (k["start_ns"], k["launched"]))
        twins = [k for k in later if (k["start_ns"], k["launched"]) == (item["start_ns"], item["launched"])]
        item = twins[0]
        if not item["known"]:
            return "idle: unexplained", ""
        if item["launched"] < begun or t >= item["launched"]:
            if "Recv" in item["name"]:
                return "communication", "before a receive"
            return ("idle: device gap" if item["launched"] < begun else "idle: launch latency"), ""
        return self.host(item["thread"], t)

    def host(self, thread: int, t: int) -> tuple[str, str]:
        engine = any(row["thread"] == ENGINE for row in self.rows["ops"])
        team = [MAIN, ENGINE] if engine else [MAIN]
        others = [other for other in team if other != thread] if thread in team else []
        for member in [thread, *others]:
            causes = self.causes(member, t)
            if causes:
                cause = min(causes, key=ORDER.index)
                return f"idle: {cause}", causes[cause]
        runner = MAIN if thread == ENGINE and engine else thread
        python = runner == MAIN or any(row["thread"] == runner for row in self.rows["waits"])
        first, last = self.extent(runner)
        return ("idle: python" if python and first <= t < last else "idle: unexplained"), ""

    def causes(self, thread: int, t: int) -> dict[str, str]:
        def here(row: dict[str, Any]) -> bool:
            return row["thread"] == thread and row["start_ns"] <= t < row["end_ns"]

        result = {}
        for row in filter(here, self.rows["ops"] + self.rows["launches"]):
            result["dispatching"] = ""
            cause = CALLS.get(row.get("api", ""), "dispatching")
            result[cause] = row["api"] if cause != "dispatching" else ""
        for row in filter(here, self.rows["waits"]):
            result["compilation" if row["cause"] == "compile" else row["cause"]] = ""
        return result

    def extent(self, thread: int) -> tuple[int, int]:
        rows = [r for name in ("ops", "launches", "waits") for r in self.rows[name] if r["thread"] == thread]
        times = [(r["start_ns"], r["end_ns"]) for r in rows]
        if thread == MAIN:
            times += [(row["mark_ns"], row["end_ns"]) for row in self.rows["steps"]]
        return min((a for a, _ in times), default=0), max((b for _, b in times), default=0)


def totals(device: Device) -> dict[tuple[str, str], int]:
    return {(entry.entry, entry.detail): entry.ns for entry in device.ledger}


@settings(max_examples=60)
@given(timelines())
def test_every_nanosecond_is_where_the_design_puts_it(made: Timeline) -> None:
    if not made.tables.get("kernels"):
        return
    reference = Reference(made)
    with tempfile.TemporaryDirectory() as folder:
        (device,) = devices_of(Path(folder) / "s.fathom", made)
    assert [(window.start_ns, window.end_ns) for window in device.windows] == reference.windows()
    truth: Counter = Counter()
    for window, bounds in zip(device.windows, reference.windows(), strict=True):
        if window.used:
            truth += reference.account(bounds)
    result = totals(device)
    used = sum(window.used for window in device.windows)
    for key in {*truth, *result}:
        # Shares are rounded to whole nanoseconds, window by window.
        allowed = used if key[0] in ("compute", "communication", "copy") else 0
        assert abs(result.get(key, 0) - truth.get(key, 0)) <= allowed, (key, result, truth)
    for entry in ("compute", "communication", "copy"):
        both = (sum(ns for key, ns in item.items() if key[0] == entry) for item in (result, truth))
        assert len(set(both)) == 1, entry
