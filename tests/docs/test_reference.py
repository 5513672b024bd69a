"""Generated pages cover everything that the code registers, and every documented command parses."""

import re
import shlex
import sys
from functools import cache

import pytest
import typer

from fathom.analysis.measures.evaluate import catalogue
from fathom.cli.main import app
from fathom.diagnosis.kinds import kinds
from fathom.gauges.catalogue import GAUGES
from fathom.lab import techniques
from fathom.machine.checks import checks
from fathom.sounding import TABLES
from fathom.tips import tips
from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import console
import reference
from reference.markdown import table, text

PAGES = sorted((ROOT / "docs").glob("[!b]*.md")) + sorted((ROOT / "docs" / "guides").glob("*.md"))
CUT = re.compile(r"\s(?:\||>|&&|2>|#).*")


@cache
def generated():
    return reference.pages()


@cache
def group():
    return typer.main.get_command(app)


def anchors(folder):
    pages = [page for path, page in generated().items() if path.startswith(folder)]
    return set(re.findall(r"\{:? ?#([^\s}]+)", "\n".join(pages)))


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("reference/findings", lambda: kinds()),
        ("reference/checks", lambda: [check.id for check in checks()]),
        ("reference/techniques", lambda: techniques()),
        ("reference/tips", lambda: [tip.id for tip in tips()]),
    ],
    ids=["findings", "checks", "techniques", "tips"],
)
def test_each_has_a_section(folder, names):
    assert anchors(folder) == set(names())


def test_each_command_has_a_section_with_its_options():
    page = generated()["reference/commands.md"]
    documented = set(re.findall(r"^## `(.+?)`", page, re.M))
    top = {command.name for command in app.registered_commands}
    assert {f"fathom {name}" for name in top} <= documented
    for members in app.registered_groups:
        names = {command.name for command in members.typer_instance.registered_commands}
        assert {f"fathom {members.name} {name}" for name in names} <= documented
    assert "`--stop-after [N|recorded]`" in page and "`--metrics" in page


def test_each_table_and_column_is_listed():
    page = generated()["reference/tables.md"]
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert sections.keys() == TABLES.keys()
    for name, columns in TABLES.items():
        assert all(f"| `{column}` |" in sections[name] for column in columns)


def test_each_ceiling_and_measure_is_listed():
    assert all(f"| `{gauge.id}` |" in generated()["reference/ceilings.md"] for gauge in GAUGES)
    assert all(f"| `{row.name}` |" in generated()["reference/measures.md"] for row in catalogue())


def test_each_bar_is_listed_with_its_figure_and_command():
    import tomllib

    page = generated()["accuracy.md"]
    for bar in tomllib.loads((ROOT / "docs" / "bars.toml").read_text(encoding="utf-8"))["bar"]:
        assert f"### {bar['id']}\n" in page
        assert bar["command"].split(";")[0] in page and text(bar["figure"])[1:] in page


def test_a_column_has_the_comment_behind_it():
    assert (
        "| `parent` | `Int64` |  | step that contains this micro-step; null for steps"
        in generated()["reference/tables.md"]
    )


def documented():
    for page in [*PAGES, ROOT / "README.md"]:
        source = page.read_text(encoding="utf-8")
        lines = [*console.commands(source), *re.findall(r"^ {4}(fathom .+)$", source, re.M)]
        yield from ((page.stem, line) for line in lines if line.startswith("fathom "))


@pytest.mark.parametrize(("page", "line"), [*documented()])
def test_documented_commands_parse(page, line):
    words = shlex.split(CUT.sub("", line))[1:]
    command, context = group(), None
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    context = command.make_context("fathom", words)
    assert context is not None


def test_many_commands_are_documented():
    assert len([*documented()]) > 60


def test_prose_is_escaped_outside_of_code():
    assert text("a *b* in [c] of <d>, `*e*`") == r"a \*b\* in \[c\] of \<d>, `*e*`"
    assert text("see https://example.org/a.html, then go") == "see <https://example.org/a.html>, then go"


def test_a_bar_in_a_cell_does_not_end_it():
    lines = table(("a", "b>"), [("1 | 2", "`3|4`")]).splitlines()
    assert lines == ["| a | b |", "| --- | ---: |", r"| 1 \| 2 | `3|4` |"]
