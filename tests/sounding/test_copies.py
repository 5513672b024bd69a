"""Calls of copies from pageable memory last as long as they block; all other calls stay as recorded."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.sounding.raw.copies import PIECE, waiting
from fathom.sounding.schema import TABLES, conform, empty

US, MS = 1_000, 1_000_000
HERE = {"phase": "timeline", "burst": 1}
MAIN, OTHER = 7, 8
LARGE = 4 * PIECE


def call(number: int | None, start_us: float, end_us: float, api: str = "cudaLaunchKernel", **more: Any):
    """A call of the main thread."""
    times = {"start_ns": int(start_us * US), "end_ns": int(end_us * US)}
    return {**HERE, "correlation": number, "thread": MAIN, "api": api, **times, **more}


def copy_call(number: int | None, begun_us: float, **more: Any):
    """The call of a copy as CUPTI's records of device work place it: 5 µs, just before the copy."""
    return call(number, begun_us - 6, begun_us - 1, "cudaMemcpyAsync", **more)


def work(number: int | None, start_us: float, end_us: float, **more: Any):
    times = {"start_ns": int(start_us * US), "end_ns": int(end_us * US)}
    return {**HERE, "device": 0, "stream": 7, "correlation": number, "kind": "compute", **times, **more}


def copied(number: int | None, start_us: float, end_us: float, size: int = LARGE, **more: Any):
    return work(number, start_us, end_us, kind="copy", direction="HtoD pageable", bytes=size, **more)


def sample(at_us: float, stack: str, thread: int | None = MAIN):
    return {**HERE, "time_ns": int(at_us * US), "thread": thread, "stack": stack}


def wait(start_us: float, end_us: float, thread: int | None = MAIN):
    times = {"start_ns": int(start_us * US), "end_ns": int(end_us * US)}
    return {**HERE, "thread": thread, "cause": "input", **times}


def table(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return conform(name, pl.DataFrame(rows, schema=TABLES[name])) if rows else empty(name)


def placed(
    launches: list[dict[str, Any]],
    kernels: list[dict[str, Any]],
    stacks: list[dict[str, Any]] | None = None,
    waits: list[dict[str, Any]] | None = None,
) -> list[tuple[float, float]]:
    """Begin and end of each call in µs."""
    before = table("launches", launches)
    after = waiting(
        before, table("kernels", kernels), table("stacks", stacks or []), table("waits", waits or [])
    )
    others = pl.exclude("start_ns", "end_ns")
    assert after.schema == before.schema and after.select(others).equals(before.select(others))
    return [(start / US, end / US) for start, end in after.select("start_ns", "end_ns").iter_rows()]


# A kernel is launched at 0 and runs until 30 ms; the copy begins 5 µs later. The launch "lasts" until then.
LAUNCHED, RAN = call(10, 0, 29_999), work(10, 20, 30_000)
BLOCKED, COPIED = copy_call(20, 30_005), copied(20, 30_005, 31_000)


def test_a_call_waits_since_its_stack_was_sampled():
    """The stack of the copy appears between 2 and 4 ms."""
    stacks = [sample(2_000, "loss"), sample(4_000, "copy"), sample(29_000, "copy"), sample(31_500, "next")]
    calls = placed([LAUNCHED, BLOCKED, call(30, 31_010, 31_015)], [RAN, COPIED], stacks)
    assert calls == [(0, 7), (3_000, 31_000), (31_010, 31_015)]


def test_without_stacks_it_waits_since_the_call_before():
    assert placed([LAUNCHED, BLOCKED], [RAN, COPIED]) == [(0, 7), (7, 31_000)]


def test_a_stack_that_is_older_than_the_call_begins_nothing():
    stacks = [sample(at, "copy") for at in (-500, 3, 10_000, 20_000)]
    assert placed([LAUNCHED, BLOCKED], [RAN, COPIED], stacks)[1] == (7, 31_000)


@pytest.mark.parametrize("thread", [OTHER, None])
def test_stacks_of_other_threads_say_nothing(thread):
    stacks = [sample(2_000, "loss", thread), sample(4_000, "copy", thread)]
    assert placed([LAUNCHED, BLOCKED], [RAN, COPIED], stacks)[1] == (7, 31_000)


def test_a_wait_of_its_thread_precedes_the_call():
    """A batch arrives at 12 ms; another thread waits for longer."""
    waits = [wait(1_000, 12_000), wait(1_000, 25_000, OTHER), wait(30_500, 32_000)]
    assert placed([LAUNCHED, BLOCKED], [RAN, COPIED], waits=waits) == [(0, 7), (12_000, 31_000)]


def test_a_host_that_came_late_did_not_wait():
    """The device was idle for 10 ms before the copy: only the call's end is replaced."""
    late = [call(10, 0, 5), copy_call(20, 40_000)]
    assert placed(late, [RAN, copied(20, 40_000, 41_000)]) == [(0, 5), (39_994, 41_000)]


def test_a_call_that_is_placed_before_the_one_ahead_returned_begins_then():
    """CUPTI's calls of two copies: the second is placed long before the first ended."""
    second = call(30, 28_000, 28_005, "cudaMemcpyAsync")
    kernels = [RAN, COPIED, copied(30, 31_400, 32_000)]
    assert placed([LAUNCHED, BLOCKED, second], kernels)[1:] == [(7, 31_000), (31_000, 32_000)]


def test_copies_after_each_other_each_have_their_time():
    """The first waits for the kernel, the second, 20 µs after the first, only for the first."""
    kernels = [RAN, COPIED, copied(30, 31_020, 33_000), copied(40, 33_020, 34_000)]
    launches = [LAUNCHED, BLOCKED, copy_call(30, 31_020), copy_call(40, 33_020), call(50, 34_100, 34_105)]
    calls = placed(launches, kernels)
    assert calls == [(0, 7), (7, 31_000), (31_014, 33_000), (33_014, 34_000), (34_100, 34_105)]


def test_a_synchronisation_before_it_keeps_the_wait():
    """Its length is measured, and the copy follows at once."""
    synced = call(15, 10, 29_999, "cudaStreamSynchronize")
    launches = [call(10, 0, 5), synced, BLOCKED]
    assert placed(launches, [RAN, COPIED]) == [(0, 5), (10, 29_999), (29_999, 31_000)]


def test_a_call_returns_before_the_next_begins():
    """It returns with the last piece that it stages, before that piece is copied."""
    assert placed([BLOCKED, call(30, 30_950, 30_955)], [COPIED])[0][1] == 30_950


def test_a_call_did_not_wait_if_the_next_began_before_its_copy():
    """On chips that read pageable memory themselves, for example; the wait is then the next call's."""
    synced = call(30, 20_000, 31_000, "cudaStreamSynchronize")
    launches = [LAUNCHED, call(20, 19_900, 19_905, "cudaMemcpyAsync"), synced]
    assert placed(launches, [RAN, COPIED]) == [(0, 29_999), (19_900, 19_905), (20_000, 31_000)]
    several = [LAUNCHED, call(18, 19_000, 19_005, "cudaMemcpyAsync"), *launches[1:]]
    kernels = [RAN, copied(18, 15_000, 16_000), COPIED]
    assert placed(several, kernels)[1:] == [(19_000, 19_005), (19_900, 19_905), (20_000, 31_000)]


@pytest.mark.parametrize(
    "kernel",
    [
        copied(20, 30_005, 31_000, size=PIECE),  # of one piece: it is staged at once, and queued
        copied(20, 30_005, 31_000) | {"direction": "HtoD pinned"},
        copied(20, 30_005, 31_000) | {"direction": "DtoH pageable"},
        copied(20, 30_005, 31_000) | {"bytes": None},
        copied(20, 30_005, 31_000) | {"start_ns": None},
        copied(None, 30_005, 31_000),
        copied(20, 30_005, 31_000) | {"burst": 2},
    ],
)
def test_other_copies_change_nothing(kernel):
    assert placed([LAUNCHED, BLOCKED], [RAN, kernel]) == placed([LAUNCHED, BLOCKED], [])


def test_recorded_calls_stay():
    """Kineto's call of a copy returns while the last piece is copied."""
    recorded = call(20, 12, 30_900, "cudaMemcpyAsync")
    assert placed([call(10, 0, 5), recorded], [RAN, COPIED]) == [(0, 5), (12, 30_900)]


def test_calls_without_number_or_times_stay():
    launches = [call(None, 29_998, 29_999), call(5, 0, 0) | {"start_ns": None}, LAUNCHED, BLOCKED]
    before = table("launches", launches)
    after = waiting(before, table("kernels", [RAN, COPIED]), empty("stacks"), empty("waits"))
    assert after[:2].equals(before[:2]) and after["end_ns"][3] == 31_000 * US


def test_a_copy_without_a_launched_kernel_or_a_call_ahead():
    assert placed([BLOCKED], [COPIED]) == [(29_999, 31_000)]
    assert placed([BLOCKED], [RAN, COPIED]) == [
        (29_999, 31_000)
    ]  # another thread's kernel, or an earlier one
    stacks = [sample(2_000, "loss"), sample(4_000, "copy")]
    assert placed([BLOCKED], [RAN, COPIED], stacks) == [(3_000, 31_000)]
    assert placed([LAUNCHED], [RAN, COPIED]) == [(0, 29_999)]  # its call was not recorded


def test_an_unknown_thread_is_one_thread():
    launches = [LAUNCHED | {"thread": None}, BLOCKED | {"thread": None}]
    stacks = [sample(2_000, "loss", None), sample(4_000, "copy", None), sample(8_000, "x", MAIN)]
    assert placed(launches, [RAN, COPIED], stacks) == [(0, 7), (3_000, 31_000)]


def test_another_stream_or_burst_is_no_work_that_it_waited_for():
    for other in ({"stream": 9}, {"device": 1}, {"burst": 2}, {"phase": "attribution"}):
        assert placed([call(10, 0, 5), BLOCKED], [RAN | other, COPIED])[1] == (29_999, 31_000)


def test_bursts_are_separate_and_times_are_exact():
    """Times are since the epoch: a float would be off by 256 ns."""
    epoch = 1_795_889_576_533_886_675
    later = [row | {"burst": 2} for row in (LAUNCHED, BLOCKED)]
    launches = table("launches", [LAUNCHED, BLOCKED, *later])
    kernels = table("kernels", [RAN, COPIED, RAN | {"burst": 2}, COPIED | {"burst": 2}])
    moved = [
        frame.with_columns(pl.col("start_ns", "end_ns") + pl.lit(epoch)) for frame in (launches, kernels)
    ]
    after = waiting(*moved, empty("stacks"), empty("waits"))
    assert (after["start_ns"] - epoch).to_list() == [0, 7 * US] * 2
    assert (after["end_ns"] - epoch).to_list() == [7 * US, 31_000 * US] * 2


def test_nothing_recorded_stays_nothing():
    none = [empty(name) for name in ("launches", "kernels", "stacks", "waits")]
    assert waiting(*none).equals(none[0])
    without_calls = waiting(none[0], table("kernels", [COPIED]), *none[2:])
    assert without_calls.equals(none[0])


GAPS = st.integers(0, 400)
CALLS = st.lists(
    st.tuples(
        GAPS,  # µs from the call before
        st.integers(0, 300),  # of the call
        st.sampled_from(["kernel", "copy", "small", "sync"]),
        st.integers(0, 300),  # µs from its begin to that of its work
        st.integers(1, 300),  # of its work
        st.sampled_from([MAIN, MAIN, OTHER, None]),
        st.sampled_from([7, 7, 9]),
    ),
    max_size=12,
)
SAMPLES = st.lists(
    st.tuples(st.integers(0, 5_000), st.sampled_from("ab"), st.sampled_from([MAIN, OTHER, None])), max_size=12
)
WAITS = st.lists(
    st.tuples(st.integers(0, 4_000), st.integers(0, 500), st.sampled_from([MAIN, None])), max_size=3
)


@given(CALLS, SAMPLES, WAITS)
def test_calls_of_a_thread_stay_in_order_and_end_after_they_begin(calls, samples, waits):
    launches, kernels, clock = [], [], 0
    for number, (gap, length, kind, lag, took, thread, stream) in enumerate(calls):
        clock += gap
        api = {"kernel": "cudaLaunchKernel", "sync": "cudaStreamSynchronize"}.get(kind, "cudaMemcpyAsync")
        launches.append(call(number, clock, clock + length, api, thread=thread))
        made = work if kind == "kernel" else copied
        if kind != "sync":
            size = {} if kind != "small" else {"size": 100}
            kernels.append(made(number, clock + lag, clock + lag + took, stream=stream, **size))
    before = table("launches", launches)
    stacks = table("stacks", [sample(*row) for row in samples])
    waited = table("waits", [wait(start, start + length, thread) for start, length, thread in waits])
    after = waiting(before, table("kernels", kernels), stacks, waited)
    assert (after["end_ns"] >= after["start_ns"]).all()
    for (_,), mine in after.group_by("thread"):
        assert mine.sort("correlation")["start_ns"].is_sorted()
    launching = before["api"] == "cudaLaunchKernel"
    assert after.filter(launching)["start_ns"].equals(before.filter(launching)["start_ns"])
    assert (after.filter(launching)["end_ns"] <= before.filter(launching)["end_ns"]).all()
    synced = before["api"] == "cudaStreamSynchronize"
    assert after.filter(synced).equals(before.filter(synced))


@given(CALLS, SAMPLES)
def test_without_such_a_copy_nothing_changes(calls, samples):
    launches = [
        call(number, 100 * number, 100 * number + length, thread=thread)
        for number, (_, length, _, _, _, thread, _) in enumerate(calls)
    ]
    kernels = [work(number, 100 * number + lag, 5_000) for number, (*_, lag, _, _, _) in enumerate(calls)]
    before = table("launches", launches)
    stacks = table("stacks", [sample(*row) for row in samples])
    assert waiting(before, table("kernels", kernels), stacks, empty("waits")).equals(before)
