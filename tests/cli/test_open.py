"""`fathom open` and the options of `fathom report` that write pages and figures."""

from __future__ import annotations

import webbrowser

from typer.testing import CliRunner

from fathom.cli.main import app
from tests.report.page.test_page import SOUNDING, needs_figures


def test_open_shows_the_page_in_the_browser(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda url: shown.append(url) or True)
    path = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["open", str(SOUNDING), "--to", str(path)])
    assert result.exit_code == 0 and shown == [path.as_uri()]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(path) in result.output


def test_a_page_needs_the_suffix_html(tmp_path):
    result = CliRunner().invoke(app, ["report", str(SOUNDING), "--html", str(tmp_path / "page.txt")])
    assert result.exit_code == 2 and "does not end in .html" in result.output


@needs_figures
def test_report_writes_figures(tmp_path):
    result = CliRunner().invoke(app, ["report", str(SOUNDING), "--figures", str(tmp_path / "figures")])
    assert result.exit_code == 0 and result.output.strip() == str(tmp_path / "figures")
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"account", "ledger", "roofline", "timeline", "counters", "memory", "power"} <= names
