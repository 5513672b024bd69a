"""Control characters in a sounding never reach the terminal, pictures or pages."""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.visible import REPLACEMENT, escaped, visible, visible_line
from tests.support.small_sounding import make

OWN_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)  # of the page and the chart library: no names
EVIL = "gemm\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\b\x00</text><script>alert(1)</script>"


@pytest.fixture
def hostile(tmp_path):
    store = make(tmp_path / "s.fathom")
    for file in store.path.glob("rank-*/kernels.parquet"):
        frame = pl.read_parquet(file).with_columns(name=pl.lit(EVIL), family=pl.lit(EVIL))
        frame.write_parquet(file)
    manifest = json.loads((store.path / "manifest.json").read_text())
    changed = {"name": EVIL, "command": [EVIL], "versions": {"torch": EVIL}, "checksums": {}}
    problems = [{"what": EVIL, "text": EVIL}]
    (store.path / "manifest.json").write_text(json.dumps(manifest | changed | {"problems": problems}))
    return store.path


def controls(text):
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}


@pytest.mark.parametrize(
    "words",
    [
        ["report", "S"],
        ["report", "S", "--all", "--roofline"],
        ["report", "S", "--json"],
        ["findings", "S"],
        ["kernel", "S"],
        ["kernel", "S", "gemm", "--json"],
        ["tips", "S"],
        ["dive", "S", "gemm"],
        ["dive", "S", "no such kernel"],
        ["query", "S", "select name, family from kernels"],
        ["query", "S", "select name from kernels", "--format=json"],
    ],
    ids=" ".join,
)
def test_terminal(hostile, words):
    done = CliRunner().invoke(app, [str(hostile) if word == "S" else word for word in words])
    assert not controls(done.stdout + done.stderr)


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_pictures(hostile, tmp_path, suffix):
    file = tmp_path / f"report.{suffix}"
    assert CliRunner().invoke(app, ["report", str(hostile), f"--{suffix}", str(file)]).exit_code == 0
    text = file.read_text()
    assert "gemm" in text and "<script>alert" not in text
    assert not controls(OWN_SCRIPT.sub("", text))
    if suffix == "svg":
        ElementTree.fromstring(text)


@given(st.text())
def test_replacement_keeps_positions(text):
    assert len(visible(text)) == len(visible_line(text)) == len(text)
    for before, after in zip(text, visible_line(text), strict=True):
        assert after in (before, REPLACEMENT)
        assert not unicodedata.category(after).startswith("Cc")


@given(st.text())
def test_json_stays_equal(text):
    assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text
