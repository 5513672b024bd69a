"""The result of a gate: on the terminal, as Markdown for a pull request, as JUnit XML for a CI system."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.text import Text

from fathom.analysis.compare import Checked, GateResult, name_of
from fathom.errors import BadInputError, file_error
from fathom.report import units
from fathom.report.comparison import amount, cause_line
from fathom.report.screen import LEAST, show_within_margins
from fathom.units import NS_PER_MS
from fathom.visible import visible_line

LOOK = {"kept": ("✓", "green"), "exceeded": ("✗", "red"), "unknown": ("?", "yellow")}
WITHIN, OVER, UNKNOWN = "within budget", "over budget", "not all budgets can be checked"
STYLES = {WITHIN: "bold green", OVER: "bold red", UNKNOWN: "bold yellow"}
ROWS = 8  # entries and causes in Markdown
COLUMN = 11
ESCAPED = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_[]|#~"} | {"<": "&lt;", ">": "&gt;", "@": "&#64;"}
)
NO_BASELINE = "A single recording, without a baseline."


def print_gate(result: GateResult, console: Console | None = None) -> None:
    """Print the budgets, 40 to 120 columns wide."""
    show_within_margins(lambda width: page(result, width), console)


def page(result: GateResult, width: int) -> Iterator[Text]:
    """Yield the whole screen, one Text per line."""
    yield Text()
    yield Text.assemble((f" {_title(result).upper()} ", STYLES[_title(result)]))
    headline = result.comparison.headline if result.baseline else NO_BASELINE
    yield from map(Text, textwrap.wrap(headline, width, break_on_hyphens=False))
    yield Text()
    room = max(width - 2 - 4 * COLUMN, LEAST)
    head = "".join(f"{name:>{COLUMN}}" for name in ("baseline", "candidate", "limit", "noise ±"))
    yield Text(f"  {'budget':<{room}}{head}", "dim underline")
    for checked in result.budgets:
        yield from _budget(checked, room, width)
    yield Text()


def _budget(checked: Checked, room: int, width: int) -> Iterator[Text]:
    """Yield a budget with its limit in full; a long one has its figures on the next line."""
    sign, colour = LOOK[checked.status]
    figures = "".join(f"{figure:>{COLUMN}}" for figure in _figures(checked))
    name = visible_line(f"{checked.name} {checked.budget}")
    *above, last = [name] if len(name) < room else [*textwrap.wrap(name, width - 2), ""]
    for place, line in enumerate([*above, f"{last:<{room}}{figures}"]):
        yield Text.assemble((f"{'' if place else sign:<2}", colour), line)
    yield from (Text(f"    {line}", "dim") for line in textwrap.wrap(checked.why, width - 4))


def _title(result: GateResult) -> str:
    return WITHIN if result.passed else OVER if result.exceeded else UNKNOWN


def _figures(checked: Checked) -> list[str]:
    values = checked.baseline, checked.candidate, checked.limit, checked.band
    return [units.MISSING if value is None else amount(value, checked.unit) for value in values]


def gate_markdown(result: GateResult) -> str:
    """Return the result as Markdown: budgets, entries that moved, causes."""
    comparison = result.comparison
    headline = comparison.headline if result.baseline else NO_BASELINE
    lines = [f"### Fathom: {_title(result)}", "", _text(headline), ""]
    lines += ["| | budget | baseline | candidate | limit | noise ± |", "|---|---|---:|---:|---:|---:|"]
    for checked in result.budgets:
        name = f"{checked.name} {checked.budget}" + (f" ({checked.why})" if checked.why else "")
        lines.append(_row(LOOK[checked.status][0], name, *_figures(checked)))
    moved = comparison.moved[:ROWS] if result.baseline else []
    if moved:
        lines += [
            "",
            "| moved by more than noise | baseline, ms | candidate, ms | change, ms |",
            "|---|---:|---:|---:|",
        ]
    for change in moved:
        before, after = (f"{ns / NS_PER_MS:.3f}" for ns in (change.baseline_ns, change.candidate_ns))
        lines.append(_row(name_of(change), before, after, f"{change.change_ms:+.3f}"))
    causes = comparison.causes[:ROWS] if result.baseline else []
    lines += ["", *(f"- {_text(cause_line(cause))}" for cause in causes)] if causes else []
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(text: str) -> str:
    """Return text for a table cell, in which names of kernels stay text."""
    return visible_line(text).translate(ESCAPED)


def gate_junit(result: GateResult) -> str:
    """Return the result as JUnit XML: one test case per budget."""
    exceeded = sum(checked.status == "exceeded" for checked in result.budgets)
    unknown = sum(checked.status == "unknown" for checked in result.budgets)
    counts = {"tests": str(len(result.budgets)), "failures": str(exceeded), "errors": str(unknown)}
    suites = ET.Element("testsuites", {"name": "fathom", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": "budgets", **counts})
    for checked in result.budgets:
        case = ET.SubElement(
            suite, "testcase", {"classname": "fathom.budgets", "name": visible_line(checked.name)}
        )
        baseline, candidate, limit, _ = _figures(checked)
        text = f"{checked.name}: {candidate}, limit {limit} ({checked.budget}), baseline {baseline}"
        if checked.status != "kept":
            tag = "failure" if checked.status == "exceeded" else "error"
            message = "; ".join(filter(None, (text, checked.why))) if tag == "failure" else checked.why
            ET.SubElement(case, tag, {"message": visible_line(message)}).text = visible_line(text)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def save_text(text: str, path: Path) -> None:
    """Write a text file. Raises BadInputError if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(file_error(path, error, "written")) from None
