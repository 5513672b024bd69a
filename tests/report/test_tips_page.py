"""The page of tips: broken ones with their cost, reasons of unknown ones, counts by area."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from fathom.analysis.results import Money
from fathom.report.findings import ALONE
from fathom.report.tips import print_tips
from fathom.tips import STATUSES, By, Score, Scores, tips

BROKEN = Score(
    id="data.workers",
    area="data",
    title="Load data with enough worker processes",
    text="More help as long as there are cores for them.",
    status="broken",
    reason="Too few workers (batches are late: 41 %)",
    by=By(findings=("input-too-few-workers",), techniques=("loader-workers",)),
    gain_ms=3.21,
    low_ms=2.0,
    high_ms=4.04,
    share=0.12,
    step_kind="train",
    of_program=0.12,
    saves_per_day=Money(22.68, "USD"),
    findings=("input-too-few-workers",),
)
UNKNOWN = Score(
    id="os.boost",
    area="os",
    title="Keep boost on",
    text="It pays.",
    status="unknown",
    reason="no switch",
    by=By(),
)


def page(*entries: Score, width: int = 100, terminal: bool = False, **options) -> str:
    counts = {status: sum(entry.status == status for entry in entries) for status in STATUSES}
    console = Console(file=StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_tips(Scores(counts, list(entries)), console, **options)
    return console.file.getvalue()


def test_a_broken_tip_shows_its_cost_its_evidence_and_where_to_look():
    text = page(BROKEN, UNKNOWN)
    for part in (
        "!! Load data with enough worker processes  data.workers",
        "saves    3.2 ms (2.0–4.0), 12 % of a train step · 22.7 USD per day and GPU",
        "evidence Too few workers (batches are late: 41 %)",
        "fathom explain input-too-few-workers · fathom lab run loader-workers",
        "1 broken · 1 unknown · 0 to be read · 0 kept · 0 not applicable",
        "?? os.boost: no switch",
    ):
        assert part in text
    assert ALONE not in text


def test_tips_for_one_loss_share_its_cost():
    other = replace(BROKEN, id="data.other", title="Load less data")
    text = page(BROKEN, other)
    assert (
        text.count("saves    3.2 ms") == 1
        and "or       Load less data  data.other" in text
        and ALONE not in text
    )
    assert ALONE in page(BROKEN, replace(other, findings=("input-collate",)))


def test_a_failed_check_costs_no_milliseconds_and_names_its_command():
    failed = replace(
        BROKEN, gain_ms=None, share=None, saves_per_day=None, findings=(), checks=("kernel.turbo",)
    )
    text = page(failed)
    assert (
        "fathom machine check --only kernel.turbo" in text and "saves" not in text and "lab run" not in text
    )


def test_reasons_that_many_tips_share_take_one_line():
    text = page(*(replace(UNKNOWN, id=f"os.{number}") for number in range(9)))
    assert "?? 9 tips: no switch" in text and "os.3" not in text


def test_a_list_shows_every_tip_with_its_text():
    kept = replace(UNKNOWN, id="os.kept", status="kept", reason="as observed")
    text = page(BROKEN, UNKNOWN, kept, listed=True)
    assert text.count("It pays.") == 2 and "ok Keep boost on  os.kept" in text and "area" not in text


@pytest.mark.parametrize(("terminal", "most"), [(40, 40), (60, 60), (80, 80), (200, 120)])
def test_no_line_is_wider_than_the_terminal(terminal, most):
    longest = sorted(tips(), key=lambda tip: -len(tip.title) - len(tip.id))[:20]
    every = [
        replace(UNKNOWN, id=tip.id, area=tip.area, title=tip.title, text=tip.text, reason=tip.text)
        for tip in longest
    ]
    for listed in (False, True):
        text = page(BROKEN, *every, width=terminal, terminal=True, listed=listed)
        assert max(map(len, text.splitlines())) <= most
