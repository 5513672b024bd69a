"""The entries of the wall time sum to it, and agree with `fathom goodput` on the recording."""

from __future__ import annotations

import random

import pytest

from fathom.analysis import goodput_of
from fathom.sounding import import_raw
from fathom.units import NS_PER_S
from fathom.watch import Watch
from fathom.watch.wall import Wall
from tests.support.live_recording import BEGUN, MS, LiveRecording, S


def test_entries_sum_to_the_time_since_the_start_whatever_happens():
    for seed in range(50):
        rng = random.Random(seed)
        wall, now = Wall(BEGUN), BEGUN
        for _ in range(rng.randrange(0, 5)):
            start = now + rng.randrange(10**9)
            wall.wait(rng.choice(["compilation", "checkpoint", "gc"]), start, start + rng.randrange(10**9))
        wall.begin(now := now + rng.randrange(3 * 10**9))
        for _ in range(rng.randrange(200)):
            start, now = now, now + rng.randrange(10**8)
            if rng.random() < 0.2:
                wall.wait(rng.choice(["compilation", "checkpoint"]), start, rng.randrange(start, now + 1))
            if rng.random() < 0.02:
                wall.begin(now := now + 10**8)
            phase = rng.choice(["settle", "clean", "timeline"])
            wall.step(now, phase, rng.choice(["train", "train+evaluation"]))
        now += rng.randrange(10**9)
        entries = wall.entries(now)
        assert sum(entries.values()) == pytest.approx(now - BEGUN) and min(entries.values(), default=0) >= 0


def test_goodput_agrees_with_that_of_the_finished_recording(tmp_path):
    recording = LiveRecording(tmp_path / "run.fathom", depth="surface")
    recording.now += 5 * S
    recording.phase = "settle"
    recording.steps(20, 12)
    recording.phase = "clean"
    for _ in range(5):
        recording.steps(60, 10)
        recording.steps(1, 400, kind="train+evaluation")
        start = recording.now
        recording.say(
            t="wait", cause="checkpoint", thread=1, start=start + MS, end=start + 701 * MS, detail=""
        )
        recording.steps(1, 710)
        recording.steps(1, 90)
    watch = Watch(recording.folder, clock=lambda: recording.now, examine=False)
    watch.poll()
    live = watch.view().ranks[0]
    recording.end(end_ns=recording.now, signal=None, abstained=[])
    recorded = goodput_of([import_raw(recording.folder, tmp_path / "copy.fathom")])
    assert recorded is not None
    expected = {entry: ns / NS_PER_S for entry, ns in recorded.entries_ns.items() if ns}
    assert live.entries_s == pytest.approx(expected, rel=1e-3)
    assert live.goodput == pytest.approx(recorded.share, abs=1e-3) and recorded.steps == live.steps
