"""Pages on terminals from 40 to 200 columns: no line is wider, and narrow ones lose nothing that matters."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from fathom.analysis.results import Examination
from fathom.cli.main import app
from fathom.cli.query import as_records
from fathom.report import print_findings, print_report
from fathom.report.screen import folded
from tests.support import kept_reports
from tests.support.paths import EXAMPLES

GPT = str(EXAMPLES / "train_gpt-h200.fathom.zip")
PAGES = [
    ("explain", "framework-not-compiled"),
    ("explain", "--list"),
    ("tips",),
    ("lab", "list"),
    ("lab", "show", "coalescing"),
    ("machine",),
    ("machine", "check", "--all"),
    ("query", GPT),
    ("what-if", GPT, "family:layer_norm*=0.5"),
    ("plan", "train", "llama3-8b", "--on", "h100", "--gpus", "8", "--batch", "64"),
]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def report(of: Examination, width: int, **view) -> str:
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=True, no_color=True)
    print_report(of, console, **view)
    print_findings(of.findings, "", console, of.leads)
    return COLOUR.sub("", out.getvalue())


@given(st.sampled_from(kept_reports.names()), st.integers(40, 200), st.booleans())
@settings(max_examples=40)
def test_no_line_of_a_report_is_wider_than_the_terminal(name, width, every):
    view = {"top": None, "roofline": True, "profiled": True} if every else {}
    assert max(map(len, report(kept_reports.report(name), width, **view).splitlines())) <= width


@pytest.mark.parametrize("name", kept_reports.names())
def test_a_narrow_report_has_each_finding_and_each_time(name):
    kept = kept_reports.report(name)
    wide, narrow = (re.sub(r"\s+", " ", report(kept, width)) for width in (120, 60))
    for finding in kept.findings[:5]:
        assert finding.title in narrow and finding.id in narrow
    for text in re.findall(r"(?:clean step|profiled step) +[\d.]+", wide):
        assert text in narrow


@pytest.mark.parametrize("words", PAGES, ids=lambda words: " ".join(words[:2]))
def test_no_line_of_a_command_is_wider_than_the_terminal(words):
    """Of those whose pages no other test renders."""
    on_terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "60"}
    printed = CliRunner().invoke(app, words, env=on_terminal)
    assert printed.exit_code in (0, 1) and isinstance(printed.exception, SystemExit | None), printed.output
    assert max(map(len, COLOUR.sub("", printed.stdout).splitlines())) <= 60


@example("中" * 25 + "  a", 40)
@given(st.text("ab  é中0", max_size=90), st.integers(40, 80))
def test_a_folded_line_keeps_its_words(line, width):
    parts = list(folded(Text(line), width))
    assert all(part.cell_len <= width for part in parts)
    assert "".join("".join(part.plain for part in parts).split()) == "".join(line.split())


@given(
    st.dictionaries(st.text("abc_", min_size=1, max_size=30), st.text("ab c", max_size=200)),
    st.integers(40, 200),
)
def test_a_row_as_a_record_fits(row, width):
    lines = as_records([row], width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert all(any(line.startswith(name) for line in lines) for name in row)
