"""Collectives of several ranks: who waited for whom, against truths that were laid down by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.results import Device, Examination
from tests.support.timelines import Timeline, devices_of, examination_of, nanoseconds

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
STEP = 1_000_000


def rank(number: int, *collectives: tuple[int, int], name: str = REDUCE) -> Timeline:
    """One step from 0 to STEP with these collectives, launched long before, and work at its end."""
    timeline = Timeline(rank=number)
    timeline.steps(0, STEP)
    for place, (start, end) in enumerate(collectives):
        timeline.kernel(start, end, 10 + place, name=name, kind="collective", stream=20)
    timeline.kernel(STEP - 1000, STEP, 500)
    return timeline


def entries(devices: list[Device]) -> list[dict[str, int]]:
    return [nanoseconds(device) for device in devices]


def whys(examination: Examination) -> list[str]:
    return [absence.why for absence in examination.abstained if absence.what == "waiting for peers"]


def test_the_early_rank_waits_and_the_late_one_moves_bytes(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s", rank(0, (1000, 9000)), rank(1, (6000, 9100)))
    early, late = entries(examination.devices)
    assert (early["waiting for peers"], early["moving bytes"]) == (5000, 3000)
    assert late["moving bytes"] == 3100 and "waiting for peers" not in late
    assert "communication" not in early and not whys(examination)


def test_compute_hides_waiting_and_moving_alike(tmp_path: Path) -> None:
    hidden = rank(0, (1000, 9000))
    hidden.kernel(2000, 7000, 600)
    early = entries(devices_of(tmp_path / "s", hidden, rank(1, (6000, 9100))))[0]
    assert (early["compute"], early["waiting for peers"], early["moving bytes"]) == (6000, 1000, 2000)


@settings(max_examples=12)
@given(st.data())
def test_each_collective_is_matched_with_its_peers(tmp_path_factory, data: st.DataObject) -> None:
    """Any number of ranks and collectives: waiting is what lies before the latest start, in sum."""
    ranks, count = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 5))
    starts = [[10_000 * k + data.draw(st.integers(1000, 4000)) for k in range(count)] for _ in range(ranks)]
    ends = [10_000 * k + 9000 for k in range(count)]
    lines = [rank(r, *zip(starts[r], ends, strict=True)) for r in range(ranks)]
    result = entries(devices_of(tmp_path_factory.mktemp("peers") / "s", *lines))
    for r in range(ranks):
        latest = [max(s[k] for s in starts) for k in range(count)]
        assert result[r].get("waiting for peers", 0) == sum(latest[k] - starts[r][k] for k in range(count))
        assert result[r]["moving bytes"] == sum(ends[k] - latest[k] for k in range(count))


def test_without_all_ranks_it_stays_one_entry(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s", rank(0, (1000, 9000)))
    assert entries(examination.devices)[0]["communication"] == 8000
    assert "1 of 2 ranks" in whys(examination)[0]


def test_sends_and_receives_are_not_taken_for_meetings(tmp_path: Path) -> None:
    lines = [rank(0, (1000, 9000), name=SEND), rank(1, (6000, 9100), name=SEND)]
    early = entries(devices_of(tmp_path / "s", *lines))[0]
    assert early["communication"] == 8000 + 990  # and the gap between its call and its start
    assert "waiting for peers" not in early and "moving bytes" not in early


def test_an_unequal_number_of_collectives_leaves_the_odd_one_whole(tmp_path: Path) -> None:
    lines = [rank(0, (1000, 9000), (20_000, 21_000)), rank(1, (6000, 9100))]
    early = entries(devices_of(tmp_path / "s", *lines))[0]
    assert (early["waiting for peers"], early["moving bytes"], early["communication"]) == (5000, 3000, 1000)


def test_clocks_that_disagree_are_not_compared(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s", rank(0, (1000, 9000)), rank(1, (400_000, 500_000)))
    assert entries(examination.devices)[0]["communication"] == 8000
    assert "clocks disagree" in whys(examination)[0]


@settings(max_examples=6)
@given(st.data())
def test_clocks_are_aligned_by_the_ends_of_collectives(tmp_path_factory, data: st.DataObject) -> None:
    """With one clock milliseconds off, waiting is what it is on equal clocks, but for the jitter of ends."""
    off = data.draw(st.sampled_from([-1, 1])) * data.draw(st.integers(60_000, STEP // 4))
    jitter = data.draw(st.integers(0, 300))
    starts = [[300_000 + 10_000 * k + data.draw(st.integers(1000, 4000)) for k in range(9)] for _ in range(3)]
    ends = [300_000 + 10_000 * k + 9000 for k in range(9)]
    shift = [0, off, 0]

    def lines(jitter: int, shift: list[int]) -> list[Timeline]:
        draw = random.Random(off)
        each = [[end + draw.randint(0, jitter) for end in ends] for _ in shift]
        pairs = [zip(starts[r], each[r], strict=True) for r in range(3)]
        return [rank(r, *((a + shift[r], b + shift[r]) for a, b in pairs[r])) for r in range(3)]

    folder = tmp_path_factory.mktemp("clocks")
    equal = entries(devices_of(folder / "equal", *lines(0, [0, 0, 0])))
    result = examination_of(folder / "off", *lines(jitter, shift))
    for before, after in zip(equal, entries(result.devices), strict=True):
        assert abs(before.get("waiting for peers", 0) - after.get("waiting for peers", 0)) <= 9 * 2 * jitter
    (text,) = [problem.text for problem in result.integrity.problems if problem.what == "clocks-aligned"]
    assert f"differ by up to {round(abs(off) / 1000)}" in text or jitter


def test_steps_are_matched_by_their_number(tmp_path: Path) -> None:
    """A rank that recorded one step more does not shift the others."""
    ahead, behind = Timeline(rank=0), Timeline(rank=1)
    for k in (7, 8):
        ahead.step(STEP * k, STEP * (k + 1), step=k)
        ahead.kernel(STEP * k + 1000, STEP * k + 9000, STEP * k + 10, name=REDUCE, kind="collective")
    behind.step(STEP * 8, STEP * 9, step=8)
    behind.kernel(STEP * 8 + 6000, STEP * 8 + 9000, STEP * 8 + 10, name=REDUCE, kind="collective")
    early = entries(devices_of(tmp_path / "s", ahead, behind))[0]
    assert (early["waiting for peers"], early["communication"]) == (5000, 8000)


def test_a_program_without_collectives_says_nothing_about_peers(tmp_path: Path) -> None:
    assert not whys(examination_of(tmp_path / "s", rank(0)))


@pytest.mark.parametrize("name", ["ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16"])
def test_every_collective_that_needs_all_is_split(tmp_path: Path, name: str) -> None:
    lines = [rank(0, (1000, 9000), name=name), rank(1, (6000, 9100), name=name)]
    assert entries(devices_of(tmp_path / "s", *lines))[0]["waiting for peers"] == 5000
