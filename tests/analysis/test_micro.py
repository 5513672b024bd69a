"""Micro-steps on the device: sub-windows that tile their step, whatever the host's lead."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.results import Device
from tests.support.timelines import Timeline, devices_of

MS = 1_000_000


def accumulating(lengths: list[list[int]], lead: int = 0) -> Timeline:
    """Steps of micro-steps that keep the device busy for `lengths`, launched `lead` before they run."""
    timeline, now = Timeline(), 10 * MS
    begin = now
    for number, micro in enumerate(lengths):
        end = begin + sum(micro)
        timeline.step(begin - lead, end - lead, step=number)
        for length in micro:
            timeline.add(
                "steps", step=number, parent=number, kind="micro-step", mark_ns=begin - lead, end_ns=begin + 1
            )
            timeline.kernel(begin, begin + length, begin - lead + 5)
            begin += length
    return timeline


def parts(device: Device) -> list[tuple[int | None, int]]:
    return [(w.step, w.end_ns - w.start_ns) for w in device.windows if w.kind == "micro-step"]


@pytest.mark.parametrize("lead", [0, 3 * MS])
def test_micro_steps_are_as_long_as_their_work(tmp_path, lead):
    lengths = [[2 * MS, 2 * MS, 5 * MS]] * 4
    device = devices_of(tmp_path / "s", accumulating(lengths, lead))[0]
    used = {w.step for w in device.windows if w.used}
    assert used and {step for step, _ in parts(device)} == used
    assert device.micro_ms == pytest.approx([2.0, 2.0, 5.0])


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(200_000, MS), min_size=2, max_size=5), min_size=1, max_size=5),
    st.integers(0, 2 * MS),
)
def test_sub_windows_tile_their_window(tmp_path_factory, lengths, lead):
    folder = tmp_path_factory.mktemp("micro") / "s"
    device = devices_of(folder, accumulating(lengths, lead))[0]
    for window in [w for w in device.windows if w.used]:
        own = [w for w in device.windows if w.kind == "micro-step" and w.step == window.step]
        assert own[0].start_ns == window.start_ns and own[-1].end_ns == window.end_ns
        assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(own))
        assert not any(w.used for w in own)


def test_a_step_of_one_micro_step_has_no_parts(tmp_path):
    device = devices_of(tmp_path / "s", accumulating([[MS], [MS]]))[0]
    assert not parts(device) and device.micro_ms == []


def test_uneven_steps_have_no_mean_by_place(tmp_path):
    device = devices_of(tmp_path / "s", accumulating([[MS, MS], [MS, MS, MS]]))[0]
    assert device.micro_ms == [] and parts(device)
