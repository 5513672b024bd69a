"""The page and the lines of a running program: kept as text, and safe for any terminal."""

from __future__ import annotations

import re

import msgspec
import pytest
from rich.cells import cell_len

from fathom.analysis.live import FoundCause, Live, Slowdown
from fathom.report import live_events, live_line, live_page
from fathom.report.live.page import curve
from fathom.report.live.words import changes, elapsed
from tests.support.live_views import NOW, S, full_view, moved, rank
from tests.support.paths import DATA

PAGES = DATA / "watch"


def page(live: Live, width: int = 100, height: int = 60) -> str:
    return "\n".join(line.plain for line in live_page(live, width, height, "q quit")) + "\n"


@pytest.mark.parametrize(("name", "ranks", "width"), [("one", 1, 100), ("ranks", 12, 80)])
def test_the_page_is_as_it_was_read_and_kept(name, ranks, width):
    """After a change on purpose: read the new page, then write it over the kept one."""
    kept = PAGES / f"{name}.txt"
    assert page(full_view(ranks), width) == kept.read_text()


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("height", [5, 24, 60])
def test_a_page_fits_its_terminal(width, height):
    lines = live_page(full_view(12), width, height, "q quit")
    assert len(lines) <= height and max(cell_len(line.plain) for line in lines) <= width
    assert lines[-1].plain.strip() == "q quit"


def test_a_program_without_steps_and_one_that_ended_say_so():
    empty = Live("a.fathom", [], NOW, NOW - 5 * S)
    assert "No step yet" in page(empty) and "starting 5 s" in page(empty)
    ended = msgspec.structs.replace(full_view(), state="ended", ended="exited", exit_status=3)
    assert "exited with status 3" in page(ended) and "fathom report runs/train.fathom" in page(ended)


def test_a_stalled_rank_is_named():
    live = msgspec.structs.replace(full_view(), ranks=[rank(stalled=True, since_mark_s=75)], state="stalled")
    assert "No step for 1 min 15 s" in page(live) and "no step for 1 min 15 s" in live_line(live)


def test_hostile_names_reach_no_terminal():
    cause = FoundCause("a", "\x1b[2Jbad\u202e", "do\x07", 1.0, 0.1)
    live = full_view()
    live.command, live.path = ["\x1b]0;title\x07"], "x\x1b[31m"
    live.insight.findings, live.alerts[0].change.findings = [cause], [cause]
    for text in (page(live), live_line(live), *live_events(None, live)):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_a_line_has_the_state_and_events_have_what_is_new():
    live = full_view()
    line = live_line(live)
    assert re.match(r"\d\d:\d\d:\d\d step 52,800 24.1 ms \(\+94.4 %\)", line) and "612 W" in line
    events = list(live_events(None, live))
    assert any(
        "alert: slower since about step 51,900: 12.4 ms → 24.1 ms (+94 %)" in event for event in events
    )
    assert any("step +11.7 ms: idle: input +11.4 ms" in event for event in events)
    assert any("finding: Too few worker processes" in event for event in events)
    assert list(live_events(live, live)) == []


def test_a_change_names_whole_entries_and_the_largest_row_of_each():
    """Of 4 ms more Python, one line holds 1.2 ms, which alone would name less than a third of the change."""
    rows = [moved("idle: python", "spend (slow.py:25)", 1_200_000), moved("compute", "gemm", -200_000)]
    sums = {"idle: python": 4.0, "compute": -0.3, "idle: input": 0.8, "copy": 0.05}
    text = changes(Slowdown(10.0, 14.55, rows, sums))
    assert text == (
        "step +4.55 ms: idle: python +4.00 ms, of which spend (slow.py:25) +1.20 ms, "
        "idle: input +800 µs, compute −300 µs, of which gemm −200 µs"
    )


def test_curves_grow_from_zero_to_the_largest_value():
    assert curve([0, 5, 10], 3) == "▁▅█" and curve([1, 2, 10], 1) == "█" and curve([], 5) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (184, "3 min 04 s"), (7620, "2 h 07 min"), (273600, "3 d 04 h")],
)
def test_long_durations_have_two_units(seconds, text):
    assert elapsed(seconds) == text
