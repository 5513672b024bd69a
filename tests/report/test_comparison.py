"""A comparison and a gate on the terminal, as a page, as Markdown and as JUnit XML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fathom.analysis.compare import Cause, Change, ComparedRun, Figure, GateResult, SoundingComparison
from fathom.analysis.compare.budgets import Checked
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


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", ["gemm 1x1x1·1x1x1", HOSTILE, "x" * 300])
def test_every_line_fits(width, name):
    for show in (
        lambda console: print_sounding_comparison(comparison(name), console),
        lambda console: print_gate(gate(name), console),
    ):
        assert max(map(len, shown(show, width).splitlines())) <= width


def test_the_printed_changes_add_up():
    text = shown(lambda console: print_sounding_comparison(comparison(), console))
    rows = [line for line in text.splitlines() if re.search(r" [+-]\d+\.\d+ ", line + " ")]
    table = rows[rows.index(next(row for row in rows if "●" in row and "gemm" in row)) :]
    changes = [float(re.findall(r" ([+-]\d+\.\d+)", row)[0]) for row in table[:3]]
    assert changes[0] + changes[1] == pytest.approx(changes[2]) == 1.5
    assert "bf16 → gemm" in text and "SLOWER" in text and "record" in text.lower()


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
