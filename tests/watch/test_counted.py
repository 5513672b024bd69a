"""Steps that the probe only counts are followed like recorded ones: a real session on a simulated clock."""

from __future__ import annotations

import json

import pytest

from benchmarks.cost.soak import START, Clock, imported, recording, step
from fathom.analysis import goodput_of
from fathom.probe.plan import COUNT_AFTER, COUNT_AFTER_SURFACE, ProbePlan
from fathom.units import NS_PER_S
from fathom.watch import Rule, Watch
from tests.support.live_recording import MS, S


class Program:
    """A program that takes steps, its recording, and somebody who looks every second."""

    def __init__(self, own, folder, clock, rule=None):
        self.own, self.clock = own, clock
        (folder / "raw" / "launch.json").write_text(json.dumps({"start_ns": START, "command": ["train"]}))
        self.watch, self.states, self.next = Watch(folder, rule, clock=clock, examine=False), set(), 0

    def steps(self, seconds, ms):
        until = self.clock.ns + seconds * S
        while self.clock.ns < until:
            step(self.own, self.clock, int(ms * MS), loads=True)
            if self.clock.ns >= self.next:
                self.look()

    def look(self):
        self.next = self.clock.ns + NS_PER_S
        self.watch.poll()
        live = self.watch.view()
        self.states.add(live.state)
        return live


def test_counted_steps_are_followed(tmp_path):
    clock = Clock()
    with recording(tmp_path, clock, count_after=100) as own:
        program = Program(own, tmp_path, clock)
        program.steps(150, 50)
        for _ in range(3):
            start = clock.ns
            clock.ns += 300 * MS
            own.wait("checkpoint", start, clock.ns)
            program.steps(20, 50)
        live = program.look()
        rank = live.ranks[0]
        assert rank.phase == "summary" and program.states <= {"starting", "running"}
        assert rank.step_ms == pytest.approx(50, rel=0.05) and rank.input_share == pytest.approx(
            0.1, abs=0.02
        )
        assert rank.samples_per_s == pytest.approx(80, rel=0.05)
        assert rank.since_mark_s < 12
        assert sum(rank.entries_s.values()) == pytest.approx((clock.ns - START) / NS_PER_S)
        clock.ns += 60 * S
        assert program.look().state == "stalled"
        program.steps(1, 50)
    live = program.look()
    recorded = goodput_of([imported(tmp_path, clock)])
    assert recorded is not None and live.ranks[0].steps == recorded.steps
    expected = {entry: ns / NS_PER_S for entry, ns in recorded.entries_ns.items() if ns}
    assert live.ranks[0].entries_s == pytest.approx(expected, rel=0.01, abs=0.1)


def test_counted_steps_that_become_slow_raise_an_alert(tmp_path):
    clock = Clock()
    with recording(tmp_path, clock, count_after=100) as own:
        program = Program(own, tmp_path, clock, Rule(20, 50))
        program.steps(100, 50)
        clock.ns += 4 * S  # one long step
        program.steps(100, 50)
        assert program.look().alerts == []
        program.steps(100, 75)
        [alert] = program.look().alerts
        assert (alert.baseline_ms, alert.step_ms) == (
            pytest.approx(50, rel=0.01),
            pytest.approx(75, rel=0.05),
        )
        program.steps(100, 50)
        assert program.look().alerts[0].over


def test_later_steps_are_counted_sooner_at_surface_depth():
    assert ProbePlan.of({"depth": "surface"}).count_after == COUNT_AFTER_SURFACE < COUNT_AFTER
    assert ProbePlan.of({"depth": "surface", "count_after": 7}).count_after == 7
    assert ProbePlan.of({"depth": "auto"}).count_after == COUNT_AFTER
