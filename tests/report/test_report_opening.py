"""The opening of a report and its account, on kept reports."""

from __future__ import annotations

import re

import msgspec
import pytest

from fathom.analysis.results import LongSteps, Part, Step
from fathom.diagnosis.verdict import conclude
from fathom.report import account, heading
from tests.support import kept_reports

NAMES = [name for name in kept_reports.names() if kept_reports.report(name).devices]


def concluded(name: str):
    result = kept_reports.report(name)
    kept = result.devices[0]
    result.verdict, result.account = conclude(
        kept, result.step, result.findings, result.leads, kept_reports.limits(result, kept)
    )
    return result


@pytest.mark.parametrize("width", [78, 98, 118])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_opens_with_at_most_four_lines(name, width):
    result = concluded(name)
    lines = [line.plain for line in heading.opening(result, width)]
    assert 2 <= len(lines) <= 4 and max(map(len, lines)) <= width
    text = " ".join(lines)
    assert "-bound: " in text or "does not show what bounds" in text
    assert (result.verdict.action or heading.NOTHING).split()[0] in text
    assert "nan" not in text.lower() and "None" not in text


def test_the_opening_says_what_the_first_remedy_saves():
    text = " ".join(line.plain for line in heading.opening(concluded("hf_trainer"), 98))
    assert re.search(
        r"Memory-bound: .* 57\.4 ms step; the step reaches at least 12 % MFU and 30 % of the speed of", text
    )
    assert re.search(r"Saves 20 ms \(11 to 29\), 35 % of the step\.", text)


def test_shares_are_of_the_step_that_is_named():
    uneven = Step(clean_ms=10.6, timeline_ms=10.7, ci_ms=None, n=600, kind="train", clean_mean_ms=13.9)
    assert heading.basis(msgspec.structs.replace(uneven, basis_ms=13.9)) == "mean step (13.9 ms)"
    assert heading.basis(msgspec.structs.replace(uneven, basis_ms=10.6)) == "step"
    assert heading.basis(msgspec.structs.replace(uneven, clean_mean_ms=10.6, basis_ms=10.6)) == "step"


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_the_account_add_up(name):
    result = concluded(name)
    for every in (False, True):
        lines = [line.plain for line in account.section(result.account, 98, every)]
        assert len(lines) <= (account.MOST + 4 if not every else len(result.account) + 2)
        assert max(map(len, lines)) <= 98
        *figures, total = [
            float(re.search(r"(-?[\d.]+) +(?:-?[\d.]+|<0\.1|0\.0)", line[40:])[1]) for line in lines[1:]
        ]
        assert sum(figures) == pytest.approx(total, rel=0.01)


def test_small_parts_are_summed_and_a_single_one_keeps_its_line():
    parts = [
        Part("matrix work at its measured ceiling", 50.0, "peak"),
        Part("idle: input", 49.0, "cause input"),
    ]
    assert len(list(account.section([*parts, Part("idle: gc", 1.0, "cause gc")], 98))) == 5
    small = [Part(f"small part {n}", 0.5, "kernels reduction") for n in range(3)]
    text = [line.plain for line in account.section([*parts, *small], 98)]
    assert len(text) == 5 and text[3].startswith("3 smaller ceiling gaps")
    assert list(account.section([], 98)) == []


@pytest.mark.parametrize(("share", "said"), [(0.2, False), (0.6, True)])
def test_the_opening_says_when_long_steps_take_much_of_the_time(share, said):
    """The verdict is about the usual step only."""
    rare = LongSteps(0, "train", 4, 64, None, 5.0, 50.0, share, [])
    result = msgspec.structs.replace(concluded("hf_trainer"), long_steps=[rare])
    text = " ".join(line.plain for line in heading.opening(result, 98))
    cost = "Rare long steps add 60 % of the total time: 4 of 64 train steps take 50.0 ms instead of 5.00 ms"
    assert (cost in text) == said


def test_a_command_is_quoted_as_a_shell_needs_it():
    summary = concluded("hf_trainer").sounding
    summary = msgspec.structs.replace(summary, command=["/usr/bin/python", "my script.py"])
    assert "python 'my script.py'" in [line.plain for line in heading.headline(summary)]


@pytest.mark.parametrize(("device", "place"), [("cuda:0", "kernel launches"), ("cpu", "memory traffic")])
def test_a_remedy_of_another_bound_says_where_it_saves_and_a_processor_launches_nothing(device, place):
    result = concluded("hf_trainer")
    chosen = msgspec.structs.replace(result.findings[0], id="kernels-for-loop-optimizer")
    verdict = msgspec.structs.replace(
        result.verdict, bound="communication", finding=chosen.id, explained_by=[]
    )
    devices = [msgspec.structs.replace(result.devices[0], device=device)]
    result = msgspec.structs.replace(result, findings=[chosen], verdict=verdict, devices=devices)
    assert f"Most is saved in {place}." in heading.advice(result)
