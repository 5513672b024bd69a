"""The result of a bisection as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.report import units
from fathom.report.screen import paragraph, show_within_margins

if TYPE_CHECKING:
    from fathom.referee import Bisection, Tested

_COLOURS = {"good": "green", "bad": "red", "skip": "yellow"}
SHORT = 10  # letters of a commit's hash
SUBJECT = 44


def print_bisection(result: Bisection, console: Console | None = None) -> None:
    """Print the first bad commit and the revisions that were timed, 40 to 120 columns wide."""
    show_within_margins(lambda width: page(result, width), console)


def page(result: Bisection, width: int) -> Iterator[Text]:
    """Yield the whole screen, one Text per line."""
    yield Text()
    yield Text.assemble(
        (" FIRST SLOW COMMIT ", "bold white on red"), (f"  {result.first_bad[:SHORT]}", "bold")
    )
    yield from paragraph("", result.subject, width)
    low, high = result.interval
    yield Text(
        f"{result.bad[:SHORT]} takes {result.ratio:.3f} times as long as {result.good[:SHORT]} "
        f"({low:.3f} to {high:.3f}); slow is a ratio above {result.threshold:.3f}",
        "dim",
    )
    yield Text()
    head = f"{'verdict':<9}{'revision':<{SHORT + 2}}{'subject':<{SUBJECT + 1}}{'ratio':>7}  99 % interval"
    yield Text(head, "dim underline")
    for tested in result.tested:
        yield from _tested(tested, width)
    yield Text()


def _tested(tested: Tested, width: int) -> Iterator[Text]:
    ratio = "" if tested.ratio is None else f"{tested.ratio:.3f}"
    interval = "" if tested.interval is None else f"{tested.interval[0]:.3f} to {tested.interval[1]:.3f}"
    subject = units.shorten(tested.subject, SUBJECT)
    line = Text(f"{tested.verdict:<9}", _COLOURS[tested.verdict])
    yield line.append(f"{tested.revision[:SHORT]}  {subject:<{SUBJECT + 1}}{ratio:>7}  {interval}", "")
    if tested.why:
        yield from paragraph(" " * 9, tested.why, width, "dim")
