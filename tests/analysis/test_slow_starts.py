"""Bursts whose start call took long: when sampling began within it is found, or it is said that it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fathom.analysis.folding.align import align, wide_scores
from fathom.analysis.folding.counters import fold_samples
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.states import states_of
from fathom.analysis.intervals import covered, union
from fathom.sounding.raw import ticks
from tests.sounding.test_counters_raw import burst_file, imported, record
from tests.sounding.test_raw_importer import MS, T0
from tests.support import folding_truth as truth
from tests.support.folding_truth import ACTIVE, EPOCH

INTERVAL, RATE = 20_000, 2.1
SLOW = st.tuples(st.integers(2, 80), st.floats(0, 1), st.integers(100, 4000))  # ms, where in it, samples


def stamped(began: int, took: int, inside: float, samples: int, rate: float = RATE) -> ticks.Stamped:
    """A burst whose sampling began `began`, that part of `took` ns after its start was called."""
    called = began - round(inside * took)
    starts = np.rint((began + INTERVAL * np.arange(samples) - T0 + 10**12) * rate).astype(np.int64)
    end = max(began + INTERVAL * samples, called + took)
    around = (called, called + took), (end, end + 2 * MS)
    return ticks.Stamped(starts, starts + round(INTERVAL * rate), *around, INTERVAL)


@given(st.lists(SLOW, min_size=1, max_size=5), st.integers(0, 4), st.floats(1.0, 3.0))
def test_a_burst_is_placed_by_a_quick_one_of_the_same_process(slow, where, rate):
    rate = round(rate * INTERVAL) / INTERVAL
    begins = [T0 + 3_000 * MS * n for n in range(len(slow) + 1)]
    made = [stamped(b, ms * MS, part, n, rate) for b, (ms, part, n) in zip(begins, slow, strict=False)]
    quick = stamped(begins[-1], 600_000, 0.95, 500, rate)
    made.insert(where % len(made), quick)
    result = ticks.rate(made)
    assert result == pytest.approx(rate, rel=1e-5)
    for burst in made:
        began, said = ticks.start_of(burst, made, result), T0 - 10**12 + int(burst.starts[0]) / rate
        assert burst.holds(result)
        assert said - 1000 <= began.at <= said + 600_000
        assert began.unsure_ns <= 601_000 and began.at - began.unsure_ns <= said + 1000


@given(SLOW)
def test_a_slow_burst_alone_says_how_unsure_it_is(slow):
    took, inside, samples = slow
    burst = stamped(T0, took * MS, inside, samples)
    result = ticks.rate([burst])
    assert result == pytest.approx(RATE) and burst.holds(result)
    began = ticks.start_of(burst, [burst], result)
    assert began.at - began.unsure_ns - 1000 <= T0 <= began.at + 1000
    assert burst.started[0] - 1000 <= began.at - began.unsure_ns and began.at <= burst.started[1]


def test_a_clock_that_began_anew_places_no_other_burst():
    item, other = stamped(T0, 600_000, 0.9, 500), stamped(T0 + 3_000 * MS, 70 * MS, 0.3, 500)
    moved = ticks.Stamped(other.starts + 10**9, other.ends + 10**9, other.started, other.stopped, INTERVAL)
    began = ticks.start_of(moved, [item, moved], RATE)
    assert began.unsure_ns >= 20 * MS and began.at - began.unsure_ns <= T0 + 3_000 * MS <= began.at


@settings(max_examples=30)
@given(st.integers(1, 400))
def test_samples_that_contradict_the_whole_call_are_refused(extra_ms):
    burst = stamped(T0, 70 * MS, 0.0, 2000)
    longer = ticks.Stamped(burst.starts, burst.ends, burst.started, (T0, T0 + 38 * MS - extra_ms), INTERVAL)
    assert not longer.holds(RATE)
    assert burst.holds(RATE)


def test_a_burst_that_began_early_in_a_call_of_70_ms_is_imported(tmp_path):
    """Its samples end 50 ms before they could, had they begun as the call returned."""
    bursts = {}
    for number, (begun, took, inside, count) in enumerate(
        [(T0, 600_000, 0.95, 400), (T0 + 3_000 * MS, 70 * MS, 0.2, 500), (T0 + 6_000 * MS, 700_000, 0.9, 400)]
    ):
        item = stamped(begun, took, inside, count)
        data = burst_file(item.starts.tolist(), item.ends.tolist(), [[1, 2]] * count)
        times = {"start_ns": list(item.started), "stop_ns": list(item.stopped)}
        bursts[number] = (record(number, data, count, begun, **times), data)
    store = imported(tmp_path, bursts)
    assert store.manifest.problems == []
    smallest = store.table("samples").collect().filter(burst=1)["start_ns"].min()
    assert abs(smallest - (T0 + 3_000 * MS)) < 100_000
    facts = store.manifest.ranks[0].facts["sampling"]
    assert [fact["clock_error_ns"] < MS for fact in facts] == [True] * 3


def brute(spans, starts, interval, active, shift, since):
    """The squared correlation at one shift, counted sample by sample."""
    begins = starts + round(shift)
    counts = begins >= since
    busy = covered(spans, begins, begins + interval)[counts]
    if np.ptp(busy) == 0 or np.ptp(active[counts]) == 0:
        return 0.0
    return max(np.corrcoef(busy, active[counts])[0, 1], 0.0) ** 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.floats(0, 0.3))
def test_scores_of_many_shifts_are_those_of_each(seed, since_first, missing):
    random = np.random.default_rng(seed)
    begins = np.sort(random.integers(0, 4_000_000, 40))
    spans = union(begins, begins + random.integers(1, 90_000, 40))
    starts = EPOCH + INTERVAL * np.flatnonzero(random.random(150) >= missing)
    assume(len(starts) > 70)
    spans = spans._replace(starts=spans.starts + EPOCH, ends=spans.ends + EPOCH)
    active = random.uniform(0, 100, len(starts))
    shifts = INTERVAL / 2 * np.arange(-60, 40)
    since = int(spans.starts[0]) if since_first else 0
    result = wide_scores(spans, starts, INTERVAL, active, shifts, since)
    began = starts[:, None] + shifts.astype(np.int64) >= since
    enough = began.sum(axis=0) >= 0.5 * began.sum(axis=0).max()
    expected = [brute(spans, starts, INTERVAL, active, shift, since) for shift in shifts]
    assert np.abs(result - np.where(enough, expected, 0.0)).max() < 1e-6


def one_burst(seed, unsure_ms, inside, idle_share=0.3):
    """A burst told as if it had begun as the call returned, though it did `inside` it; and its truth."""
    random = np.random.default_rng(seed)
    levels = random.uniform(10, 90, (8, 5))
    levels[:, 0] = random.uniform(60, 100, 8)
    rows = truth.program(random, 8, 20, high_us=600, idle_share=idle_share)
    result = truth.sampled(random, [rows], levels)
    late = round((1 - inside) * unsure_ms * MS)
    return result, result.samples.with_columns(start_ns=result.samples["start_ns"] + late,
                                             end_ns=result.samples["end_ns"] + late), late  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1), st.sampled_from([5, 20, 70]))
def test_alignment_reaches_as_far_as_the_call_took(seed, inside, unsure_ms):
    result, samples, late = one_burst(seed, unsure_ms, inside)
    [alignment] = fold_samples(samples, result.kernels, [result.names], {0: unsure_ms * MS}).alignment
    assert not alignment.why
    assert abs(alignment.shift_ns - (result.shifts[0] - late)) < 5 * alignment.error_ns + 20


def test_a_quick_start_is_aligned_as_before():
    result, samples, _ = one_burst(3, 0, 1.0)
    usual = fold_samples(samples, result.kernels, [result.names])
    said = fold_samples(samples, result.kernels, [result.names], {0: 700_000})
    assert usual.alignment == said.alignment and usual.frame.equals(said.frame)


def repeated(count, every_ns, length_ns):
    starts = EPOCH + every_ns * np.arange(count)
    return states_of(starts, starts + length_ns, np.zeros(count, np.int64), [()])


def readings(states, shift, first=0, last=None, active=None):
    """Samples of a device that is active while kernels run, from `first` to `last` ns of their time."""
    begins = np.arange(EPOCH + first, EPOCH + last, INTERVAL)
    busy = 100.0 * covered(states.spans, begins, begins + INTERVAL) / INTERVAL
    busy = busy if active is None else np.where(begins < EPOCH, active, busy)
    starts = begins - shift
    return Readings(0, [ACTIVE], np.zeros(len(starts)), starts, starts + INTERVAL, busy[:, None])


def test_what_looks_alike_at_many_shifts_is_not_aligned_and_says_why():
    states = repeated(2000, 100_000, 60_000)
    inside = readings(states, -30 * MS, first=80 * MS, last=120 * MS)
    item = align(inside, 0, states, unsure_ns=70 * MS)
    assert "70 ms" in item.why and "clearly" in item.why and item.shift_ns == 0


def test_what_ran_unrecorded_before_the_first_kernel_does_not_mislead():
    states = repeated(3, 20 * MS, 19 * MS)
    busy_before = readings(states, -25 * MS, first=-15 * MS, last=70 * MS, active=100.0)
    item = align(busy_before, 0, states, unsure_ns=40 * MS)
    assert not item.why and abs(item.shift_ns + 25 * MS) < INTERVAL


def test_samples_that_no_kernel_can_have_met_say_so():
    states = repeated(50, 100_000, 60_000)
    early = readings(states, 300 * MS, first=0, last=5 * MS)
    assert "before the first kernel" in align(early, 0, states, unsure_ns=70 * MS).why
    late = readings(states, -300 * MS, first=0, last=5 * MS)
    assert "after the last kernel" in align(late, 0, states, unsure_ns=70 * MS).why


@pytest.mark.parametrize("unsure", [10**18, -5, 2_500_001])
def test_a_hostile_uncertainty_ends_in_words_or_a_shift(unsure):
    states = repeated(100, 100_000, 60_000)
    item = align(readings(states, 0, last=10 * MS), 0, states, unsure_ns=unsure)
    assert item.why or abs(item.shift_ns) < 3 * MS
