"""The arithmetic of the benchmarks: which steps are compared, and when a planted delay counts as found."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
import cost
import cost_commands
import cost_pairs
import turn_ratio
import turns

from benchmarks.accuracy import record_all


def test_only_whole_steps_of_the_phase_are_compared():
    phases = dict.fromkeys(range(40, 100), "clean") | dict.fromkeys(range(100, 110), "timeline")
    untouched = turn_ratio.Run([0.010] * 120, {})
    slow = [0.010] * 100 + [9.0] + [0.020] * 9 + [0.010] * 10
    result = cost_pairs.compared(untouched, turn_ratio.Run(slow, phases), "timeline")
    assert result == (9, 10.0, 20.0, 2.0, 0, None)


def test_a_phase_that_was_never_reached_stops_the_benchmark():
    run = turn_ratio.Run([0.01] * 120, dict.fromkeys(range(120), "settle"))
    with pytest.raises(cost_pairs.FailedError, match="no step after the first"):
        cost_pairs.compared(run, run, "clean")


def test_the_interval_holds_the_ratio_and_widens_with_noise():
    chance = random.Random(0)

    def rows(noise: float) -> list[dict]:
        common = {"program": "p", "depth": "surface", "device": "d", "untouched_ms": 5.0}
        return [common | {"ratio": 1.02 + chance.uniform(-noise, noise)} for _ in range(12)]

    quiet, noisy = cost.cost_of(rows(0.001)), cost.cost_of(rows(0.1))
    for result in (quiet, noisy):
        assert result.low <= result.ratio <= result.high
    assert quiet.high - quiet.low < noisy.high - noisy.low
    assert quiet.low == pytest.approx(1.02, abs=0.002)


def test_both_ratios_have_an_interval_and_a_pair_without_turns_counts_in_one():
    common = {"program": "p", "depth": "surface", "device": "d", "untouched_ms": 5.0}
    said = [(1.2, 1.010), (0.9, 1.012), (1.1, None), (1.0, 1.011)]
    rows = [common | {"ratio": ratio, "ratio_of_turns": of_turns} for ratio, of_turns in said]
    result = cost.cost_of(rows)
    assert (result.pairs, result.ratio) == (4, pytest.approx(1.05))
    assert (result.ratio_of_turns.pairs, result.ratio_of_turns.ratio) == (3, 1.011)
    assert 0.9 <= result.low < 1.05 < result.high <= 1.2
    assert 1.010 <= result.ratio_of_turns.low <= 1.011 <= result.ratio_of_turns.high <= 1.012
    assert cost.cost_of([common | {"ratio": 1.0}]).ratio_of_turns is None


def test_words_after_the_dashes_belong_to_the_program():
    assert cost_commands.split(["pairs", "--", "--steps", "--", "3"]) == (
        ["pairs"],
        ["--"],
        ["--steps", "--", "3"],
    )
    assert cost_commands.split(["pairs"]) == (["pairs"], [], [])


def recording(plants=(), **entries):
    ledger = [{"entry": f"idle: {name}", "ms": ms} for name, ms in entries.items()]
    windows = [{"step": step, "used": step != 1} for step in range(3)]
    return record_all.Finished(
        {"devices": [{"ledger": ledger, "windows": windows}]}, {"plants": list(plants)}
    )


@pytest.mark.parametrize(("found_ms", "ok"), [(25.0, True), (25.9, True), (26.2, False), (5.0, False)])
def test_a_delay_is_what_the_entry_holds_beyond_the_unplanted_program(found_ms, ok):
    lengths = [99.0, 19.0, 99.0, 21.0]  # of the batches; the used steps 0 and 2 wait for the ones after them
    plant = {"kind": "loader", "asked_ms": 20.0, "costs": True, "lengths_ms": lengths}
    finished = {"planted-none": recording(input=5.0), "planted-loader": recording([plant], input=found_ms)}
    (check,) = record_all.checked("planted-loader", finished)
    assert check["entry"] == "idle: input"
    assert check["length_ms"] == 20.0
    assert check["ok"] is ok


def test_a_read_of_a_busy_device_must_not_show_as_idle_time():
    plant = {"kind": "item", "asked_ms": 0.0, "costs": False, "lengths_ms": [10.0] * 4}
    for synchronisation, ok in ((0.3, True), (9.0, False)):
        planted = recording([plant], synchronisation=synchronisation)
        finished = {"planted-none": recording(), "planted-item": planted}
        (check,) = record_all.checked("planted-item", finished)
        assert check["ok"] is ok


COUNTS = """
import pathlib, signal, sys, time
def tell(word):
    with open(sys.argv[2], "a") as file:
        file.write(word)
signal.signal(signal.SIGCONT, lambda *_: tell(sys.argv[3].upper()))
pathlib.Path(sys.argv[1]).touch()
for _ in range(150):
    time.sleep(0.002)
    tell(sys.argv[3])
"""


def test_programs_that_take_turns_come_to_their_end(tmp_path):
    begun = [tmp_path / name for name in "ab"]
    words = [(str(mark), str(tmp_path / "log"), mark.name) for mark in begun]
    programs = [subprocess.Popen([sys.executable, "-c", COUNTS, *three]) for three in words]
    never = tmp_path / "never"
    sides = [turns.Side(*which, never, never) for which in zip(programs, begun, strict=True)]
    try:
        asyncio.run(turns.take_turns([[sides]], turn_s=0.1))
    finally:
        turns.kill(programs)
    assert [program.returncode for program in programs] == [0, 0]
    log = (tmp_path / "log").read_text()
    assert (log.count("a"), log.count("b")) == (150, 150)
    resumed = [result.start() for result in re.finditer("[AB]", log)]
    turns_taken = [log[begin:end] for begin, end in pairwise(resumed)]
    strangers = sum(turn[1:].count("b" if turn[0] == "A" else "a") for turn in turns_taken)
    assert strangers <= len(resumed)  # one may have been about to tell when it was stopped


def test_who_has_a_number_after_a_program_is_left_alone(monkeypatch):
    program = subprocess.Popen([sys.executable, "-c", ""])
    program.wait()
    monkeypatch.setattr(turns.psutil, "Process", lambda pid: pytest.fail("this may be another process"))
    turns.kill([program])
