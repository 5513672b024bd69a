"""Trials in running programs: what they measure, and that the program notices nothing."""

from __future__ import annotations

import pytest

from tests.support.probe_programs import launch

ALL = {"depth": "surface", "what_if": ["logging", "gc", "input"], "settle": 3}


def _slow(folder, *words, steps=200, ms=2, workers=0, plan=None, **options):
    plan = ALL if plan is None else plan
    return launch(folder, "slow_loader.py", str(ms), str(workers), str(steps), *words, plan=plan, **options)


def test_the_program_gets_and_says_the_same(tmp_path):
    run, plain = _slow(tmp_path, workers=2), _slow(tmp_path / "plain", watched=False)
    assert run.status == 0 and run.err == ""
    assert run.out == plain.out and run.out.endswith("true\n")
    assert run.phases["trial-input"] >= 8 and run.phases["trial-logging"] >= 8


def test_no_step_of_a_trial_waits_for_a_batch(tmp_path):
    run = _slow(tmp_path, ms=8, steps=310, plan={**ALL, "what_if": ["input"]})
    order = [record["phase"] for record in run.of("phase") if record["phase"].startswith("trial")]
    assert order == ["trial-baseline", "trial-input"] * 5 + ["trial-baseline"]
    opened = [(mark["ns"], mark["phase"]) for mark in run.marks]
    waits: dict[str, list[int]] = {"trial-input": [], "trial-baseline": []}
    for batch in run.of("batch"):
        phase = max((item for item in opened if item[0] <= batch["start"]), default=(0, ""))[1]
        waits.setdefault(phase, []).append(batch["wait"])
    assert min(waits["trial-baseline"]) >= 8_000_000
    assert sorted(waits["trial-input"])[len(waits["trial-input"]) // 2] < 1_000_000
    assert len(waits["trial-input"]) >= 40


@pytest.mark.parametrize(("kind", "how", "status"), [("logging", "interrupt", -2), ("gc", "fork", 0)])
def test_whatever_happens_within_a_trial_nothing_is_lost(tmp_path, kind, how, status):
    run = _slow(tmp_path, "map", how, ms=1, plan={**ALL, "what_if": [kind]})
    assert run.status == status
    lines = run.out.splitlines()
    (end,) = [int(line.split()[1]) for line in lines if line.startswith("ending ")]
    assert next(mark["phase"] for mark in run.marks if mark["k"] == end) == f"trial-{kind}"
    last = 199 if how == "fork" else end
    assert [int(line.split()[1]) for line in lines if line.startswith("step ")] == list(range(last + 1))
    assert lines.count("child True") == (how == "fork")


@pytest.mark.parametrize(("how", "variables"), [("", {"WORLD_SIZE": "2"}), ("forks", {})])
def test_impossible_trials_do_not_prevent_the_recording(tmp_path, how, variables):
    plan = {**ALL, "depth": "timeline", "what_if": ["gc"]}
    run = _slow(tmp_path, "none", how, ms=1, steps=300, plan=plan, **variables)
    assert run.status == 0
    assert [note["what"] for note in run.of("note")].count("what-if gc") == 1
    assert run.phases["timeline"] >= 2
