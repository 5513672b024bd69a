"""The README's table of accuracy and cost repeats figures of docs/bars.toml, and stays short."""

import re
from io import StringIO

import tomllib
from rich.console import Console

import fathom
from fathom.report import print_report
from tests.support.paths import EXAMPLES, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BARS = (ROOT / "docs" / "bars.toml").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def rows():
    table = README.split("| claim | figure | interval | command |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:] if line]


def test_every_figure_is_in_the_bars():
    assert len(rows()) > 10
    known = {number for bar in tomllib.loads(BARS)["bar"] for number in NUMBER.findall(bar["figure"])}
    for claim, figure, interval, _ in rows():
        missing = set(NUMBER.findall(figure + " " + interval)) - known
        assert not missing, f"{claim}: {missing}"


def test_every_command_is_in_the_bars_or_is_a_file():
    for claim, _, _, command in rows():
        words = command.strip("`").removesuffix(" OUT")
        assert words == "same" or words in BARS or (ROOT / words).exists(), f"{claim}: {command}"


def test_it_is_short_and_names_the_set_up_commands():
    assert len(README.splitlines()) < 150
    assert README.startswith("![") and "make demo" in README and "make test" in README


def test_its_report_is_what_fathom_prints():
    shown = README.split("here on a small GPT on an H200:")[1].split("…\n\n**")[0]
    excerpt = [line for line in re.findall(r"^ {5}(\S.*)$", shown, re.M) if line.strip("…")]
    printed, kept = StringIO(), fathom.open(EXAMPLES / "train_gpt-counters-h200.fathom.zip")
    print_report(kept.examine(), Console(file=printed))
    lines = [line.strip() for line in printed.getvalue().splitlines()]
    assert len(excerpt) == 8 and [line for line in excerpt if line not in lines] == []
