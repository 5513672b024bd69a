"""Other sizes of buckets, against simulated jobs that have them; collectives of host threads in replays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fathom
from fathom.analysis.communication import CALL, fixed_time, shared_out
from fathom.analysis.replay import Replay, parse
from fathom.errors import BadInputError
from faults.timelines.simulator import Job, forward, product, update
from tests.support.timelines import MAIN, Timeline, store_of

MS, US = 1_000_000, 1_000
LAYERS = 12
PEERS = "waiting for peers"


@given(st.integers(1, 500), st.floats(0.1, 50), st.lists(st.integers(1, 10**8), min_size=4, unique=True))
def test_the_fixed_time_is_that_of_a_line_through_the_lengths(us: int, rate: float, sizes: list[int]) -> None:
    size = np.array([*sizes, 4 * max(sizes)], float)
    fit = fixed_time(size, us * US + size / rate, on_host=False)
    assert fit.fitted and fit.ns == pytest.approx(us * US, rel=1e-3, abs=1.0)


def test_one_size_gives_a_wide_interval() -> None:
    fit = fixed_time(np.full(5, 25e6), np.full(5, 1e6), on_host=False)
    assert not fit.fitted and fit.low < fit.ns < fit.high <= 200_000


@given(st.integers(100, 500), st.floats(1, 50), st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_delays_of_a_host_are_fixed_time_whichever_sizes_they_meet(
    us: int, rate: float, delays: list[int]
) -> None:
    size = np.repeat([1e3, 1e6], 20)
    length = us * US + size / rate
    delayed = length.copy()
    delayed[[20 + at for at in range(len(delays))]] += np.array(delays) * MS  # all at the large size
    fit, without = (fixed_time(size, lengths, on_host=True) for lengths in (delayed, length))
    assert fit.ns == pytest.approx(us * US + sum(delays) * MS / len(size), rel=1e-3)
    assert fit.low == pytest.approx(without.low, rel=1e-3) and fit.high >= fit.ns


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=8))
def test_collectives_share_each_instant(spans: list[tuple[int, int]]) -> None:
    starts, ends = np.array([start for start, _ in spans]), np.array([start + n for start, n in spans])
    running = [((starts <= at) & (at < ends)).sum() for at in range(80)]
    brute = [sum(1 / running[at] for at in range(start, start + length)) for start, length in spans]
    assert shared_out(starts, ends) == pytest.approx(brute)


def training(gradient: float, layers: int, hosts: int) -> Job:
    """Backward passes whose gradients are reduced in buckets of `layers` layers, the first in one of one."""

    def step(job: Job) -> None:
        forward(job, LAYERS, 100)
        waiting = 0
        for layer in range(LAYERS):
            for rank in job.ranks:
                product(rank, 200, backward=True)
            waiting += 1
            if waiting == layers or layer == LAYERS - 1:
                job.collective("all_reduce", waiting * gradient, backward=True)
                waiting = 0
        job.follow()
        update(job)

    return Job(count=2, hosts=hosts).run(step)


@pytest.mark.parametrize(
    ("gradient", "hosts", "before", "after"),
    [(4e6, 2, 1, 4), (4e6, 2, 1, 12), (20e6, 1, 2, 12), (20e6, 2, 5, 12), (20e6, 1, 12, 2), (4e6, 2, 6, 1)],
)
def test_buckets_take_what_a_job_with_such_buckets_takes(
    tmp_path: Path, gradient: float, hosts: int, before: int, after: int
) -> None:
    job = training(gradient, before, hosts)
    job.write(tmp_path / "job.fathom")
    seen = fathom.open(tmp_path / "job.fathom").what_if(f"bucket={after * gradient / 1e6:g}MB")
    truth = training(gradient, after, hosts).step_ms / job.step_ms
    assert seen.clean_ms and seen.clean_predicted_ms and seen.clean_ci_ms
    low, high = (ms / seen.clean_ms for ms in seen.clean_ci_ms)
    assert seen.clean_predicted_ms / seen.clean_ms == pytest.approx(truth, abs=0.06)
    assert low - 0.01 <= truth <= high + 0.01
    assert any("all-reduces per step become" in note for note in seen.notes)


def test_results_that_are_needed_at_once_are_not_merged(tmp_path: Path) -> None:
    """As in tensor parallelism, whose all-reduces the next layer waits for."""

    def step(job: Job) -> None:
        for _ in range(6):
            forward(job, 1, 300)
            job.collective("all_reduce", 2e6)
            job.follow()
        update(job)

    Job(count=2).run(step).write(tmp_path / "job.fathom")
    seen = fathom.open(tmp_path / "job.fathom").what_if("bucket=100MB")
    assert seen.gain_ms == pytest.approx(0.0, abs=0.01)


def test_buckets_of_unknown_size_are_not_predicted(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", *on_host([(0, 2)])))
    [why] = replay.predict([parse("bucket=25MiB")]).abstained
    assert "sizes" in why.why


@pytest.mark.parametrize("text", ["bucket=2", "bucket=0MB", "bucket=big", "bucket:x=1MB"])
def test_a_bucket_needs_a_size(text: str) -> None:
    with pytest.raises(BadInputError):
        parse(text)


def on_host(calls: list[tuple[int, int]], late: int = 0) -> list[Timeline]:
    """Two ranks without devices: 10 ms of compute (rank 1: `late` ms more), collectives of host threads that
    take the ms of `calls` after the one before, which the program waits for, and 8 ms of compute.
    """
    lines = [Timeline(rank=0), Timeline(rank=1)]
    total = sum(ms for _, ms in calls)
    step = (18 + late + total) * MS
    for rank, line in enumerate(lines):
        line.steps(*(k * step for k in range(7)))
        for zero in range(0, 6 * step, step):
            called, arrived = zero + (10 + late * rank) * MS, zero + (10 + late) * MS
            line.op("aten::mm", zero, called - len(calls))
            for place in range(len(calls)):
                line.op("c10d::allreduce_", called - len(calls) + place, called - len(calls) + place + 1)
            begin = called
            for place, (_, ms) in enumerate(calls):
                end = (arrived if place == 0 else begin) + ms * MS
                line.op("gloo:all_reduce", begin, end, MAIN + 1, kind="annotation")
                begin = end
            line.wait(PEERS, called, begin)
            line.op("aten::add_", begin, zero + step)
    return lines


@pytest.mark.parametrize(
    ("change", "saved"), [("waiting=0", 20), ("late:1=0", 20), ("communication=0", 2), ("link=2", 1)]
)
def test_collectives_of_host_threads_are_replayed(tmp_path: Path, change: str, saved: float) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", *on_host([(0, 2)], late=20)))
    seen = replay.predict([parse(change)])
    assert seen.recorded_ms == pytest.approx(40.0) and seen.gain_ms == pytest.approx(saved, abs=0.1)
    after = {moved.entry: moved.after_ms for moved in seen.moved}
    assert sum(after.values()) == pytest.approx(seen.predicted_ms, abs=0.01)


def test_buckets_of_host_threads_merge(tmp_path: Path) -> None:
    """Lengths of 2 and 4 ms for 1 and 5 MB leave 1.5 ms to each collective, whatever its size."""
    calls = [(1_000_000, 2), (5_000_000, 4), (1_000_000, 2), (5_000_000, 4)]
    replay = Replay(store_of(tmp_path / "s.fathom", *on_host(calls)))
    known = {"operation": "all_reduce", "dtype": "fp32", "group": "default_pg"}
    rows = [
        {**known, "bytes": size, "start_ns": step * 100 + place, "stream": 1, "phase": "timeline"}
        for step in range(6)
        for place, (size, _) in enumerate(calls)
    ]
    replay.collectives = pl.DataFrame(rows, schema_overrides=CALL)
    seen = replay.predict([parse("bucket=100MB")])
    assert seen.gain_ms == pytest.approx(3 * 1.5, abs=0.05)
