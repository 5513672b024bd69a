"""The phases, driven by a clock that the tests hold."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.probe.orders import Job, Orders
from fathom.probe.phases import EVENTS_PER_BURST, Phases
from fathom.probe.plan import ProbePlan
from fathom.probe.settling import settled

MS = 1_000_000


class Program:
    """Steps of given lengths; keeps what the phases ordered, and checks that it makes sense."""

    def __init__(self, plan: ProbePlan, events_a_step: int = 1000, **options: int) -> None:
        self.phases = Phases(plan, **options)
        self.events_a_step = events_a_step
        self.k, self.now = -1, 0
        self.labels: list[str] = []
        self.done: list[tuple[Job, int, int]] = []
        self._armed: Job | None = None
        self._running: tuple[Job, int] | None = None

    def step(self, length_ns: int) -> Orders:
        self.k += 1
        orders = self.phases.at(self.k, self.now)
        if orders.start is not None:
            assert orders.start == self._armed and self._running is None
            self._armed, self._running = None, (orders.start, self.k)
        if orders.stop is not None:
            assert self._running is not None and self._running[0] == orders.stop
            job, first = self._running
            self.done.append((job, first, self.k))
            self._running = None
            orders = self.phases.stopped(self.events_a_step * (self.k - first + 1))
        if orders.arm is not None:
            assert self._armed is None and self._running is None
            self._armed = orders.arm
        self.labels.append(orders.phase)
        self.now += length_ns
        return orders

    def run(self, steps: int, length_ns: int = 10 * MS) -> Program:
        for _ in range(steps):
            self.step(length_ns)
        return self


@pytest.mark.parametrize("at", ["arm", "start"])
def test_a_fault_of_a_recorder_leaves_only_clean_steps(at):
    program = Program(ProbePlan())
    while getattr(program.step(10 * MS), at) is None:
        pass
    program.phases.give_up()
    program.run(20)
    assert program.labels[-15:] == ["clean"] * 15


def test_a_steady_program_is_recorded_within_thirty_steps():
    program = Program(ProbePlan()).run(30)
    assert program.labels[0] == "settle"
    counts = Counter(program.labels)
    assert counts["clean"] >= 8 and counts["timeline"] >= 4


def test_long_steps_are_clean_for_eight_and_short_ones_for_twelve():
    for length, least in ((300 * MS, 8), (1 * MS, 12)):
        labels = Program(ProbePlan()).run(40, length).labels
        first = labels.index("clean")
        assert labels.index("transition", first) - first == least


def test_compilation_at_the_start_is_not_clean():
    program = Program(ProbePlan())
    for length in [9000, 4000, 2000, 500, 80]:
        program.step(length * MS)
    program.run(30)
    assert program.labels[:7] == ["settle"] * 7


def test_a_program_that_never_settles_is_recorded_all_the_same():
    program = Program(ProbePlan())
    for step in range(140):
        program.step(int(1000 * 1.15**step))
    assert not program.phases.settled_in_time
    assert program.labels.index("clean") <= 101 and "timeline" in program.labels


def test_settling_ends_after_a_minute():
    program = Program(ProbePlan())
    for step in range(8):
        program.step((20 + 20 * step) * 1000 * MS)
    assert "clean" in program.labels


def test_settling_may_be_given_in_steps():
    assert Program(ProbePlan(settle=7)).run(20).labels.index("clean") == 7


def test_surface_never_starts_a_recorder():
    program = Program(ProbePlan(depth="surface")).run(200)
    assert program.done == [] and set(program.labels) == {"settle", "clean"}


def test_the_timeline_may_begin_at_given_steps():
    program = Program(ProbePlan(at=[40, 90], steps=3)).run(150)
    begun = [first for job, first, _ in program.done if job.phase == "timeline"]
    assert begun[0] == 41 and 91 in begun
    assert "timeline" not in program.labels[:41]


def test_a_request_gives_one_more_timeline():
    program = Program(ProbePlan()).run(100)
    before = len(program.done)
    program.phases.request()
    program.run(20)
    assert [job.phase for job, *_ in program.done[before:]] == ["timeline"]


@pytest.mark.parametrize("light", [False, True])
def test_a_request_because_of_slow_steps_gives_bursts_that_enter_no_mean(light):
    program = Program(ProbePlan()).run(300)
    program.phases.light = light
    before = len(program.done)
    program.phases.request(slow=True)
    seen = len(program.labels)
    program.run(60)
    bursts = [job for job, *_ in program.done[before:] if job.phase == "slow"]
    assert sum(job.windows for job in bursts) == 10 and all(job.keep_above_ns is None for job in bursts)
    assert program.labels[seen:].count("slow") == 10
    assert program.phases.kept == 0 and program.phases.finished


def test_of_long_slow_steps_fewer_are_recorded():
    program = Program(ProbePlan()).run(100, 1000 * MS)
    program.phases.light = True
    before = len(program.done)
    program.phases.request(slow=True)
    program.run(60, 1000 * MS)
    assert sum(job.windows for job, *_ in program.done[before:] if job.phase == "slow") == 6


def test_surface_depth_takes_no_requests():
    program = Program(ProbePlan(depth="surface")).run(60)
    program.phases.request(slow=True)
    assert program.run(60).done == []


def test_memory_comes_last_and_only_where_there_is_a_device():
    for has_memory in (False, True):
        phases = [job.phase for job, *_ in Program(ProbePlan(), memory=has_memory).run(80).done]
        assert (phases[-1] == "memory") == has_memory and phases.count("attribution") == 1


def test_slow_steps_are_recorded_only_after_the_plan():
    program = Program(ProbePlan(on_slow_step=True), events_a_step=10).run(600)
    rolling = [(job, first) for job, first, _ in program.done if job.keep_above_ns is not None]
    planned = [end for job, _, end in program.done if job.keep_above_ns is None]
    assert rolling and min(first for _, first in rolling) > max(planned)
    assert len(rolling) == 3  # all were kept, and three are enough


@pytest.mark.parametrize("watching", [False, True])
def test_once_all_is_recorded_later_steps_are_counted(watching):
    program = Program(ProbePlan(on_slow_step=watching, count_after=50), events_a_step=10).run(600)
    counted = program.labels.index("summary")
    assert set(program.labels[counted:]) == {"summary"}
    assert set(program.labels[counted - 50 : counted]) == {"clean"}
    assert not program.done or max(last for *_, last in program.done) < counted - 50


def test_large_steps_come_in_small_bursts():
    program = Program(ProbePlan(), events_a_step=50_000).run(200)
    windows = [job.windows for job, *_ in program.done if job.phase == "timeline"]
    assert sum(windows) >= 6 and max(windows) <= 2
    attribution = next(job for job, *_ in program.done if job.phase == "attribution")
    assert not attribution.stacks


def test_while_something_else_profiles_no_step_is_clean():
    program = Program(ProbePlan()).run(12)
    program.phases.blocked = True
    program.run(30)
    assert set(program.labels[12:]) == {"transition"} and program.done == []
    program.phases.blocked = False
    program.run(60)
    assert [job.phase for job, *_ in program.done][-1] == "attribution"


def test_a_follower_does_what_the_leader_does():
    leader, follower = Program(ProbePlan(), lead=4), Program(ProbePlan(), lead=-1)
    for step in range(120):
        leader.step((10 + 3 * (step % 2)) * MS)
        follower.phases.appoint(dict(leader.phases.appointments))
        follower.step((10 + 5 * (step % 3)) * MS)
    assert leader.done == follower.done
    assert leader.labels == follower.labels and len(leader.done) >= 3


@pytest.mark.parametrize("ahead", [1, 9, 60])
def test_a_rank_that_runs_ahead_records_the_same_steps(ahead):
    leader, follower = Program(ProbePlan(), lead=4), Program(ProbePlan(), lead=-1)
    follower.run(ahead)
    for _ in range(500):
        leader.phases.furthest = follower.k
        leader.step(10 * MS)
        follower.phases.appoint(dict(leader.phases.appointments))
        follower.step(10 * MS)
    follower.done = [done for done in follower.done if done[2] <= leader.k]
    assert leader.done == follower.done and len(leader.done) >= 3


def test_a_rank_that_learns_of_the_clean_phase_too_late_enters_it_all_the_same():
    follower = Program(ProbePlan(), lead=-1).run(30)
    follower.phases.appoint({12: None})
    follower.run(10)
    assert set(follower.labels[:30]) == {"settle"} and set(follower.labels[31:]) == {"clean"}


plans = st.builds(
    ProbePlan,
    steps=st.integers(1, 12),
    settle=st.none() | st.integers(0, 20),
    at=st.lists(st.integers(0, 200), max_size=3).map(sorted),
    on_slow_step=st.booleans(),
    depth=st.sampled_from(["auto", "surface", "timeline"]),
)


@settings(max_examples=150)
@given(plans, st.lists(st.integers(1, 10**10), min_size=1, max_size=250), st.integers(1, 300_000))
def test_any_program_is_recorded_in_complete_windows(plan, lengths, events):
    program = Program(plan, events)
    for length in lengths:
        program.step(length)
    assert len(program.labels) == len(lengths)
    for job, first, last in program.done:
        assert last - first == job.windows >= 1
        assert set(program.labels[first:last]) == {job.phase}
        assert program.labels[first - 1] == program.labels[last] == "transition"
        assert job.windows <= max(2, EVENTS_PER_BURST // events)
    assert len([job for job, *_ in program.done if job.keep_above_ns is not None]) <= 3


@given(st.floats(0.001, 1e6), st.integers(4, 40))
def test_equal_steps_have_settled(length, count):
    assert settled([length] * count)


@given(st.floats(0.001, 1e6), st.floats(1.5, 100.0), st.integers(4, 40))
def test_a_change_within_the_last_windows_has_not_settled(length, factor, count):
    width = min(8, max(2, count // 4))
    assert not settled([length * factor] * (count - width) + [length] * width)


def test_a_lasting_change_of_the_step_time_has_everything_recorded_again():
    program = Program(ProbePlan()).run(60, 30 * MS)
    assert program.phases.resettled is None
    before = len(program.done)
    program.run(100, 10 * MS)
    again = [job.phase for job, _, _ in program.done[before:]]
    assert "timeline" in again and "attribution" in again
    resettled = program.phases.resettled
    assert resettled is not None and resettled >= 60
    assert all(first >= resettled for _, first, _ in program.done[before:])


@pytest.mark.parametrize(("now_ns", "again"), [(30 * MS, False), (10 * MS, True)])
def test_if_the_device_was_timed_it_decides_whether_steps_got_faster(now_ns, again):
    program = Program(ProbePlan()).run(12, 30 * MS)
    program.phases.clean.timed(program.phases._burst, [30.0 * MS] * 8)
    program.run(48, 30 * MS)
    assert not program.phases.clean.doubtful
    while not program.phases.clean.doubtful:
        program.step(10 * MS)
        assert program.phases.resettled is None and len(program.labels) < 200
    program.phases.clean.timed(program.phases._burst, [float(now_ns)] * 8)
    program.run(100, 10 * MS)
    assert (program.phases.resettled is not None) == again
    assert not program.phases.clean.doubtful and program.phases.finished


def test_without_device_times_the_host_decides():
    program = Program(ProbePlan()).run(12, 30 * MS)
    program.phases.clean.timed(program.phases._burst, [30.0 * MS] * 8)
    program.run(48, 30 * MS).run(100, 10 * MS)
    assert program.phases.resettled is not None


def test_slower_steps_after_profiling_do_not_restart_the_recording():
    program = Program(ProbePlan()).run(60, 10 * MS).run(200, 15 * MS)
    assert program.phases.resettled is None


def test_marks_that_pass_in_quiet_decide_nothing():
    program = Program(ProbePlan()).run(60, 30 * MS)
    assert program.phases.quiet
    for _ in range(100):
        program.now += 10 * MS
        program.phases.passed([program.now])
    assert program.phases.resettled is None and program.phases.quiet
    program.run(3, 10 * MS)
    assert program.phases.resettled is not None


def test_noise_alone_has_nothing_recorded_again():
    program = Program(ProbePlan())
    for number in range(400):
        program.step((8 + 5 * (number % 3)) * MS)
    assert program.phases.resettled is None


class Light(Program):
    """A program whose timelines hardly disturb it; the first burst only says how to record the next ones."""

    def step(self, length_ns: int) -> Orders:
        self.phases.light = self.phases.bare = bool(self.done) or self._running is not None
        kept, stopped = bool(self.done), self.phases.stopped
        self.phases.stopped = lambda events: stopped(events, kept)  # type: ignore[method-assign]
        try:
            return super().step(length_ns)
        finally:
            self.phases.stopped = stopped  # type: ignore[method-assign]


def test_light_bursts_are_short_with_clean_steps_between_and_a_step_that_does_not_count() -> None:
    program = Light(ProbePlan()).run(260)
    bursts = [item for item in program.done if item[0].phase == "timeline"]
    assert len(bursts) >= 11 and sum(job.windows for job, *_ in bursts[1:]) == 20
    for (job, first, last), (_, later, _) in pairwise(bursts[1:]):
        assert program.labels[first:last] == ["transition"] + ["timeline"] * job.windows
        assert program.labels[last:later].count("clean") >= 5
    deep = next(item for item in program.done if item[0].phase == "attribution")
    assert deep[0].windows == 3 and sum(last <= deep[1] for _, _, last in bursts[1:]) == 5
