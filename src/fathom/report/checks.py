"""Show the checks of a host as text: failures first, with reason and fix, then counts of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.machine.checks import Result
from fathom.report.screen import grouped, joined, paragraph, show, unknown

LABEL = 8
_NEEDS = {
    "root": "root",
    "reboot": "a reboot or a reload of the driver",
    "decision": "your decision",
    "shell": "the shell that starts the program",
}
_SIGNS = {"pass": ("ok", "green"), "not_applicable": ("--", "dim"), "abstained": ("??", "yellow")}


def print_checks(results: Sequence[Result], console: Console | None = None, *, every: bool = False) -> None:
    """Print failed checks, costliest first, then counts of the others; `every` lists those too."""
    show(lambda width: page(results, width, every=every), console)


def page(results: Sequence[Result], width: int, *, every: bool = False) -> Iterator[Text]:
    """Yield the whole screen, one Text per line."""
    failed = [result for result in results if result.status == "fail"]
    for result in failed:
        yield from _failure(result, width)
        yield Text()
    yield _counts(results)
    yield from _listed(results, width) if every else _reasons(results, width)


def _failure(result: Result, width: int) -> Iterator[Text]:
    problem = result.problem or result.title
    yield Text.assemble(("!! ", "bold red"), (result.id, "bold"), (f"  {problem}", "dim"))
    yield from _labelled("found", result.observed, width, "yellow")
    yield from _labelled("why", result.why, width)
    yield from _labelled("fix", result.fix, width)
    for command in result.commands:
        yield Text(f"{'':{LABEL + 3}}{command}", "cyan")
    if result.needs:
        yield from _labelled("needs", ", ".join(_NEEDS[need] for need in result.needs), width)
    yield from _labelled("costs", result.costs, width, "dim")


def _labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    return paragraph(f"   {label:<{LABEL}}", text, width, style, label_style="dim", hyphens=False)


def _counts(results: Iterable[Result]) -> Text:
    counts = Counter[str](result.status for result in results)
    words = {
        "fail": "failed",
        "pass": "passed",
        "not_applicable": "not applicable",
        "abstained": "not analysed",
    }
    parts = (f"{counts[status]} {word}" for status, word in words.items())
    return Text(joined(*parts), "bold red" if counts["fail"] else "bold green")


def _reasons(results: Iterable[Result], width: int) -> Iterator[Text]:
    """Yield the checks that lacked data, grouped by reason."""
    abstained = (result for result in results if result.status == "abstained")
    reasons = grouped((result.reason or "", result.id) for result in abstained)
    for why, ids in reasons.items():
        yield from unknown(f"{', '.join(ids)}: {why}", width)


def _listed(results: Iterable[Result], width: int) -> Iterator[Text]:
    room = max((len(result.id) for result in results), default=0)
    for result in results:
        if result.status != "fail":
            sign, style = _SIGNS[result.status]
            line = Text.assemble((f"{sign} ", style), f"{result.id:<{room}}  ")
            line.append(result.observed or result.reason or "", "" if result.status == "pass" else "dim")
            line.truncate(width, overflow="ellipsis")
            yield line
