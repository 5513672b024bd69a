"""Long runs: later steps are counted in bins; figures equal those of every step, and the log stays small."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cost.soak import HOUR, START, Clock, imported, recording, step, tenths
from fathom.analysis import counted_steps, goodput_of
from fathom.probe.summary import SHORTEST_NS, Summary

MS = 1_000_000


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50), st.integers(1, 7))
def test_bins_keep_every_step_and_nanosecond(lengths: list[int], chunk: int) -> None:
    summary, ends = Summary(5, START, "mark", 1, 2), START + np.cumsum(lengths)
    for first in range(0, len(lengths), chunk):
        summary.add([int(ns) for ns in ends[first : first + chunk]], "step", 2, None)
    record = summary.record()
    assert record and (record["k"], record["n"], record["end"]) == (5, len(lengths), int(ends[-1]))
    [[name, steps, samples, tokens, waits, bins]] = record["kinds"]
    assert (name, steps, samples, tokens, waits) == ("step", len(lengths), 2 * len(lengths), None, {})
    assert sum(count for _, count, _ in bins) == steps and sum(total for *_, total in bins) == sum(lengths)
    for low, count, total in bins:
        width: int = max(2 ** (low.bit_length() - 5), 1)
        inside = [length for length in lengths if low <= length < low + width]
        assert (count, total) == (len(inside), sum(inside))


def test_windows_grow_with_the_run() -> None:
    summary, windows, now = Summary(0, START, "mark", 1, 2), [], START
    while now < START + 240 * HOUR:
        now += 10_000 * MS
        summary.add([now], "step", None, None)
        if summary.is_due:
            windows.append(summary.take())
    assert len(windows) < 500
    firsts = [window["k"] for window in windows if window]
    assert firsts == [0, *np.cumsum([window["n"] for window in windows if window])[:-1]]
    assert all(window and window["end"] - window["start"] >= SHORTEST_NS for window in windows)


def test_a_day_and_many_short_steps_leave_a_small_log(tmp_path: Path) -> None:
    day = tenths(tmp_path / "day", 24 * 1_200, 3_000 * MS, loads=True)
    short = tenths(tmp_path / "short", 300_000, 15_000, loads=False)
    assert day[-1]["log_bytes"] - day[4]["log_bytes"] < 150_000
    assert short[-1]["log_bytes"] - short[4]["log_bytes"] < 20_000
    assert max(day[-1]["log_bytes"], short[-1]["log_bytes"]) < 5_000_000


def test_goodput_and_counts_equal_those_of_every_step(tmp_path: Path) -> None:
    draw, clock = random.Random(1), Clock()
    lengths = [draw.choice([9, 10, 10, 11, 90 if k > 500 else 10]) * MS for k in range(3_000)]
    with recording(tmp_path / "a.fathom", clock, 100) as own:
        for k, ns in enumerate(lengths):
            if k % 1_000 == 700:
                clock.ns += 500 * MS
                own.wait("checkpoint", clock.ns - 500 * MS, clock.ns, "torch.save")
            step(own, clock, ns)
    store = imported(tmp_path / "a.fathom", clock)
    goodput = goodput_of([store])
    assert goodput is not None and goodput.steps == len(lengths) - 1  # the first mark ends no step
    stalled = sum(ns - 10 * MS for ns in lengths[1:] if ns > 30 * MS)
    assert goodput.entries_ns["stall"] == pytest.approx(stalled, rel=0.02)
    assert goodput.entries_ns["checkpoint"] == 1_500 * MS and goodput.entries_ns["unattributed"] == 0
    assert sum(goodput.entries_ns.values()) == clock.ns - START
    counted = counted_steps(store, 0, "train")
    assert counted is not None and counted.n > 2_800
    assert counted.usual_ms == pytest.approx(10, rel=0.06) and counted.p99_ms == pytest.approx(90, rel=0.06)


def test_a_killed_process_loses_little_of_a_window(tmp_path: Path) -> None:
    clock = Clock()
    with recording(tmp_path / "a.fathom", clock, 100) as own:
        for _ in range(4_000):
            step(own, clock, 10 * MS)
        raw = tmp_path / "a.fathom" / "raw"
        before = {file: file.read_bytes() for file in raw.iterdir()}
    for file, content in before.items():  # as if the end had not been written
        file.write_bytes(content)
    steps = imported(tmp_path / "a.fathom", clock).table("summaries", 0).collect()["steps"].sum()
    assert 2_700 <= steps <= 3_900


def test_a_summary_of_another_shape_is_left_out(tmp_path: Path) -> None:
    clock = Clock()
    with recording(tmp_path / "a.fathom", clock, 100) as own:
        for _ in range(300):
            step(own, clock, 10 * MS)
    raw = tmp_path / "a.fathom" / "raw"
    pid = next(raw.glob("proc-*.jsonl")).stem.removeprefix("proc-")
    (raw / f"summary-{pid}.json").write_text(json.dumps({"t": "summary", "k": 1, "n": -1}))
    store = imported(tmp_path / "a.fathom", clock)
    assert [problem.what for problem in store.manifest.problems] == ["torn-records"]
