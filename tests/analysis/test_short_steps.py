"""Waits of steps that are shorter than the time between two samples, on simulated servers."""

from __future__ import annotations

import random
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fathom
from fathom.analysis.intervals import covered, intersect, merge, spans
from fathom.analysis.sampled import Samples
from fathom.analysis.short_steps import ENOUGH, ShortWaits, short_waits
from fathom.analysis.steps import Stretch
from tests.support.timelines import MAIN, Timeline, devices_of, store_of

US, MS = 1_000, 1_000_000
LOOP = "<module> (/p/app.py:9);_run_once (/usr/lib/python3.11/asyncio/base_events.py:1898)"
SELECT = f"{LOOP};EpollSelector.select (/usr/lib/python3.11/selectors.py:468)"
HANDLER = f"{LOOP};answer (/p/app.py:5)"
PYTHON, NO_WORK, BLOCKED = ("python", ""), ("no work", "loop"), ("blocked", "nanosleep in f")


def server(steps: int, wait: int, python: int, sleep: int = 0, seed: int = 0) -> Timeline:
    """A server whose steps wait for a request, run Python and an op, and sleep; sampled in clean steps."""
    made, generator = Timeline(devices={}), random.Random(seed)
    made.phase = "clean"
    length = wait + python + sleep + 50 * US
    for number in range(steps):
        made.step(number * length, (number + 1) * length, kind="inference")
    at = generator.uniform(0, 25 * MS)
    while at < steps * length:
        inside = at % length
        asleep = wait <= inside < wait + sleep
        call = "epoll_wait" if inside < wait else "clock_nanosleep" if asleep else None
        made.add(
            "stacks", time_ns=int(at), thread=MAIN, running=call is None, call=call,
            function="answer" if asleep else "<module>", source="/p/app.py:5" if asleep else "/p/app.py:9",
            stack=HANDLER if inside >= wait else SELECT,
        )  # fmt: skip
        at += 25 * MS * generator.uniform(0.75, 1.25)
    made.phase, made.burst = "timeline", 1
    begin, profiled = steps * length + MS, int(1.2 * length)  # recording makes Python and ops longer
    for number in range(10):
        made.step(begin + number * profiled, begin + (number + 1) * profiled, kind="inference")
        made.op("aten::mm", (end := begin + (number + 1) * profiled) - 60 * US, end)
    return made


@pytest.mark.parametrize(
    ("wait", "python", "sleep"), [(300, 450, 0), (0, 750, 0), (2300, 450, 0), (300, 450, 2000), (10, 20, 700)]
)
def test_waits_of_short_steps_have_their_share_of_the_samples(
    wait: int, python: int, sleep: int, tmp_path: Path
) -> None:
    steps = 4000
    device = devices_of(tmp_path / "s.fathom", server(steps, wait * US, python * US, sleep * US))[0]
    step = wait + python + sleep + 50
    waits = dict.fromkeys(("idle: no work", "idle: blocked"), 0.0)
    for row in device.ledger:
        if row.entry in waits:
            waits[row.entry] += 1000 * row.ms
        else:
            assert row.entry in ("idle: python", "ops")
    assert sum(row.ns for row in device.ledger) == step * US
    for entry, true in zip(waits, (wait, sleep), strict=True):
        share = true / step
        error = 4 * sqrt(share * (1 - share) * 25_000 / (steps * step))
        assert waits[entry] / step == pytest.approx(share, abs=error + 0.01)
    lines = {row.detail for row in device.ledger if row.entry == "idle: blocked"}
    assert lines == ({"clock_nanosleep in answer (app.py:5)"} if sleep else set())


def test_less_python_leaves_the_wait_for_requests(tmp_path: Path) -> None:
    sounding = fathom.open(store_of(tmp_path / "s.fathom", server(2000, 300 * US, 450 * US)).path)
    moved = {row.entry: (row.before_ms, row.after_ms) for row in sounding.what_if("python=0.5").moved}
    assert 0.2 < moved["idle: no work"][0] < 0.4
    assert moved["idle: no work"][1] == pytest.approx(moved["idle: no work"][0], rel=0.02)
    assert moved["idle: python"][1] == pytest.approx(moved["idle: python"][0] / 2, rel=0.02)


def test_few_samples_or_several_kinds_of_steps_give_no_shares(tmp_path: Path) -> None:
    few = server(200, 300 * US, 450 * US)
    assert not any(row.entry == "idle: no work" for row in devices_of(tmp_path / "a", few)[0].ledger)
    mixed = server(4000, 300 * US, 450 * US)
    mixed.tables["steps"][-1]["kind"] = "evaluation"
    assert not any(row.entry == "idle: no work" for row in devices_of(tmp_path / "b", mixed)[0].ledger)


def test_rare_long_steps_say_nothing_about_usual_ones() -> None:
    times = np.arange(2 * ENOUGH) * MS + 1
    marks = np.arange(2 * ENOUGH + 1) * MS
    marks[-1] += 1000 * MS  # the last step waits
    times = np.append(times, np.arange(500) * MS + marks[-2])
    label = np.array([0] * 2 * ENOUGH + [1] * 500)
    clean = Stretch(0, int(marks[-1]), marks, np.full(len(marks), np.nan), None, None)
    samples = Samples(MAIN, times, label, [PYTHON, NO_WORK])
    waits = short_waits(samples, [clean], spans([0], [MS]))
    assert waits is not None and not waits.ns


@given(
    st.lists(st.integers(0, 400), min_size=2, max_size=12, unique=True),
    st.lists(st.sampled_from([PYTHON, ("python", "f (p.py:1)"), NO_WORK, BLOCKED]), min_size=11, max_size=11),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_placed_waits_keep_all_time_of_the_steps_and_take_none_outside(
    cuts: list[int], labels: list[tuple[str, str]], no_work: int, blocked: int
) -> None:
    cuts.sort()
    parts = [(label, spans([a], [b])) for label, a, b in zip(labels, cuts[:-1], cuts[1:], strict=False)]
    steps = spans([100, 200], [200, 310])
    placed = ShortWaits(MAIN, {NO_WORK: no_work, BLOCKED: blocked}, steps).place(parts)
    before, after = (merge(*(part for _, part in each)) for each in (parts, placed))
    assert after.length == sum(part.length for _, part in placed) == before.length
    within = dict.fromkeys((NO_WORK, BLOCKED), 0)
    for label, part in placed:
        within[label] = within.get(label, 0) + intersect(part, steps).length
    pool = covered(before, *steps)
    wanted = sum(min(no_work + blocked, ns) for ns in pool.tolist())
    slack = len(cuts) + 3  # rounding, in each interval
    assert within[NO_WORK] + within[BLOCKED] == pytest.approx(wanted, abs=slack)
    for label in (NO_WORK, BLOCKED):
        outside = sum(part.length for own, part in parts if own == label) - sum(
            intersect(part, steps).length for own, part in parts if own == label
        )
        assert sum(part.length for own, part in placed if own == label) - within[label] == outside
