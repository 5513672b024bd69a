"""A comparison and a gate on the terminal, as a page, as Markdown and as JUnit XML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from fathom.analysis.compare import Cause, Change, ComparedRun, Figure, GateResult, SoundingComparison
from fathom.analysis.compare.budgets import Checked
from fathom.analysis.results import Abstained
from fathom.report import gate_junit, gate_markdown, print_gate, print_sounding_comparison, save_comparison

HOSTILE = "<script>alert(1)</script>|`x`*[a](b)\x1b[31m\n@all"


def change(detail: str, before: int, after: int, moved: bool, causes=()) -> Change:
    return Change(
        "compute", detail, before, after, after - before, 1000.0, moved, "op", [detail], [detail],
        op="aten::mm", causes=list(causes),
    )  # fmt: skip


def comparison(name: str = "gemm 1x1x1·1x1x1") -> SoundingComparison:
    cause = Cause("dtype", "dtype of aten::mm", "bf16", name, 1.5)
    run = ComparedRun(name, 10.0, 12)
    return SoundingComparison(
        "slower", "Slower: from 10 to 11.5 ms.", "clean median", "train",
        10_000_000, 11_500_000, 1_500_000, 1.15,
        [1.12, 1.18], 0.01, True, [run], [run],
        [change(name, 6_000_000, 7_400_000, True, [cause]), change("other", 4_000_000, 4_100_000, False)],
        [cause], [Figure("memory", "peak allocated", "B", 2**30, 2**31, 1e6, True, "lower")], [],
    )  # fmt: skip


def gate(name: str = "idle: input") -> GateResult:
    budgets = [
        Checked("step", "+2 %", "exceeded", "ms", 10.0, 11.5, 10.2, 0.1),
        Checked(f"ledger.{name}", "<= 1 ms", "kept", "ms", 0.1, 0.1, 1.0, 0.01),
        Checked("energy", "+5 %", "unknown", why="it was not recorded"),
    ]
    return GateResult(False, budgets, comparison(name))


def shown(show, width: int = 100) -> str:
    out = StringIO()
    show(Console(file=out, width=width, force_terminal=True, no_color=True))
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("name", ["gemm 1x1x1·1x1x1", HOSTILE, "x" * 300])
def test_every_line_fits(width, name):
    for show in (
        lambda console: print_sounding_comparison(comparison(name), console),
        lambda console: print_gate(gate(name), console),
    ):
        assert max(map(len, shown(show, width).splitlines())) <= width


def test_a_large_change_has_entries_though_none_exceeds_its_noise():
    still = [replace(row, moved=False) for row in comparison().entries]
    text = shown(lambda console: print_sounding_comparison(replace(comparison(), entries=still), console))
    table = text.partition("where the step changed")[2].partition("moved by more")[0]
    assert "gemm" in table and "1 other entries, within noise" in table
    small = replace(comparison(), entries=still, candidate_ns=10_100_000)
    assert (
        "gemm" not in shown(lambda console: print_sounding_comparison(small, console)).partition("where")[2]
    )


def test_the_legend_explains_the_marks_that_are_shown():
    result = comparison()
    calm = msgspec.structs.replace(result, entries=[change("other", 4_000_000, 4_100_000, False)])
    still = [msgspec.structs.replace(figure, moved=False) for figure in calm.figures]
    for made, marked in ((result, True), (calm, True), (msgspec.structs.replace(calm, figures=still), False)):
        text = " ".join(shown(lambda console, made=made: print_sounding_comparison(made, console)).split())
        assert ("● moved by more than noise." in text) == (text.count("●") > 1) == marked
        assert "The changes add up to that of the step (clean median of train steps)." in text


def test_the_printed_changes_add_up():
    text = shown(lambda console: print_sounding_comparison(comparison(), console))
    rows = [line for line in text.splitlines() if re.search(r" [+-]\d+\.\d+ ", line + " ")]
    table = rows[rows.index(next(row for row in rows if "●" in row and "gemm" in row)) :]
    changes = [float(re.findall(r" ([+-]\d+\.\d+)", row)[0]) for row in table[:3]]
    assert changes[0] + changes[1] == pytest.approx(changes[2]) == 1.5
    assert "bf16 → gemm" in text and "SLOWER" in text and "record" in text.lower()


FIGURES = [
    Figure("step", "MFU", "", 0.851, 0.393, 0.06, False, "higher", why="shares of different peaks"),
    Figure("step", "HFU", "", 0.851, 0.393, 0.06, False, "higher", why="shares of different peaks"),
    Figure("step", "samples/s", "/s", 5000.0, 5500.0, 100.0, True, "higher"),
    Figure("counters", "l1tex__t_sector_hit_rate.ratio", "", 0.25, 0.0002, 0.01, True, of="gemm"),
    Figure("counters", "sm__warp_latency.ratio", "", 0.0625, 1200.0, 0.01, True, of="gemm"),
    Figure("counters", "sm__still.ratio", "", 1.0, 1.0, 0.01, False, of="gemm"),
]


def text_of(page: str) -> str:
    """The text of a page's body without scripts."""
    return re.sub(r"\s+", " ", re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", " ", page)).replace(
        "&#39;", "'"
    )


def test_the_page_has_what_the_terminal_has(tmp_path):
    """Figures with change and noise, steps, the note on single recordings, reasons for gaps."""
    why = "a side has no hardware counters"
    result = replace(comparison(), figures=FIGURES, abstained=[Abstained("counters", why)])
    save_comparison(result, tmp_path / "page.html")
    page = text_of((tmp_path / "page.html").read_text())
    screen = re.sub(r"\s+", " ", shown(lambda console: print_sounding_comparison(result, console), 120))
    for text in (
        "n = 12", "is a single recording", why, "those of the mean step",
        "85.1 % 39.3 %", "5.00 k/s 5.50 k/s +10.0 % 2.0 %", "25.0 % <0.1 % -99.9 % 4.0 %", "0.0625 1200",
    ):  # fmt: skip
        assert text in screen and text in page.replace("&lt;", "<"), text
    assert "HFU" not in screen and "HFU" not in page  # it equals MFU
    assert "sm__still" not in screen and "sm__still" not in page
    assert "-53.8 %" not in screen + page  # shares of different peaks


@pytest.mark.parametrize("width", [80, 100, 120])
def test_both_sides_of_a_cause_are_visible(width):
    """Causes of the whole program come first, and long names leave room for the other side's."""
    causes = [
        Cause("kernel choice", "kernels of aten::mm", "sm80_" + "a" * 200, "sm90_" + "b" * 200, -3.0),
        Cause("shape", "shapes of aten::mm", "1×2", "3×4"),
        Cause("environment", "LD_LIBRARY_PATH", "/usr/lib:" * 30, "not set"),
    ]
    result = replace(comparison(), causes=causes)
    lines = shown(lambda console: print_sounding_comparison(result, console), width).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(" why"))
    environment, kernels, shapes = lines[start + 1 : start + 4]
    assert "LD_LIBRARY_PATH: /usr/lib" in environment and environment.rstrip().endswith("→ not set")
    assert "mm: sm80_a" in kernels and " → sm90_b" in kernels and kernels.endswith("-3.000")
    assert "1×2 → 3×4" in shapes
    counted = Figure("step", "MFU", "", 0.4, 0.5, 0.01, True, "higher", at_least=["candidate"])
    bound = replace(comparison(), figures=[counted])
    text = shown(lambda console: print_sounding_comparison(bound, console), width)
    assert "≥ 50.0 %" in text and "+25.0 %" in text
    smaller = replace(comparison(), figures=[replace(counted, candidate=0.1)])
    text = shown(lambda console: print_sounding_comparison(smaller, console), width)
    assert "≥ 10.0 %" in text and "-75.0 %" not in text, "it may only seem to be smaller"


def test_limits_and_figures_are_whole_at_any_width():
    """Long budgets keep their limits, and shares above 1 their unit."""
    rows = [
        Checked("ledger.idle: loading of the batches", "<= 1.25 % of step", "kept", "ms", 0.1, 0.1, 1.0, 0.2),
        Checked(
            "ledger." + "compute *attention_backward*" * 3, "<= 7.5 ms", "kept", "ms", 0.1, 0.1, 7.5, 0.2
        ),
        Checked("mfu", ">= 40 %", "unknown", "", 0.4, 0.41, 0.4, 1.7, why="noise"),
    ]
    result = GateResult(False, rows, comparison())
    for width in (80, 100, 120):
        text = re.sub(r"\s+", " ", shown(lambda console: print_gate(result, console), width))
        assert "<= 1.25 % of step" in text and "<= 7.5 ms" in text and "170.0 %" in text
        assert text.count("200 µs") == 2 and "…" not in text and "noise ±" in text


class Tags(HTMLParser):
    """Collects script elements with their text."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.inside = [], False

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script"
        self.scripts += [""] if self.inside else []

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def test_hostile_names_stay_text_on_the_page(tmp_path):
    save_comparison(comparison(HOSTILE), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    reader = Tags()
    reader.feed(page)
    assert not any(script.startswith("alert(1)") for script in reader.scripts)
    assert "&lt;script&gt;alert(1)" in page and "\x1b" not in page


def test_markdown_keeps_its_table():
    text = gate_markdown(gate(HOSTILE))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows[:5]} == {7}
    assert "<script" not in text and "@all" not in text and "over budget" in text


def test_junit_counts_its_cases():
    suite = ElementTree.fromstring(gate_junit(gate(HOSTILE))).find("testsuite")
    cases = suite.findall("testcase")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [bool(case.find("failure") is not None) for case in cases] == [True, False, False]
    assert cases[2].find("error").get("message") == "it was not recorded"
    assert cases[0].find("failure").get("message").startswith(cases[0].find("failure").text)
