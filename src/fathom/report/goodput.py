"""Goodput as one line of verdict and a table: where the wall time of a job goes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fathom.analysis.results import Goodput
from fathom.report import units
from fathom.report.screen import show
from fathom.units import NS_PER_S

BAR = 10
LABEL, SECONDS = 18, 12  # columns
MEANINGS = {
    "productive": "steps at their usual time",
    "start-up": "before the first step",
    "compilation": "torch.compile",
    "evaluation": "steps that read another loader",
    "checkpoint": "saving",
    "stall": "steps over 3 times the usual",
    "restart": "from one attempt to the next one's first step",
    "shutdown": "after the last step",
    "unattributed": "work outside marked steps",
}


def print_goodput(goodput: Goodput, console: Console | None = None) -> None:
    """Print the verdict and the entries."""
    show(lambda width: section(goodput, width), console)


def section(goodput: Goodput | None, width: int) -> Iterator[Text]:
    """Yield the verdict and a line for each entry that took time; nothing without goodput."""
    if goodput is None:
        return
    wall_ns = sum(goodput.entries_ns.values())
    yield Text(units.shorten(verdict(goodput), width), "bold")
    head = f"{'wall time':<{LABEL}}{'s':>{SECONDS}}{'%':>7}"
    yield Text(head, "dim underline")
    for entry, ns in goodput.entries_ns.items():
        if ns:
            line = Text(f"{entry:<{LABEL}}{ns / NS_PER_S:>{SECONDS},.3f}{100 * ns / wall_ns:>7.1f}  ")
            line.append(
                f"{units.bar(ns / wall_ns, BAR):<{BAR}}", "green" if entry == "productive" else "yellow"
            )
            yield line.append(f"  {MEANINGS.get(entry, '')}".rstrip(), "dim")
    yield Text(f"{'job':<{LABEL}}{goodput.wall_s:>{SECONDS},.3f}{100:>7.1f}", "bold")


def verdict(goodput: Goodput) -> str:
    """Return the sentence that states the goodput and the largest loss."""
    losses = {entry: ns for entry, ns in goodput.entries_ns.items() if entry != "productive" and ns}
    worst = max(losses, key=lambda entry: losses[entry], default=None)
    lost = f"; the largest loss is {worst}, {losses[worst] / NS_PER_S:,.3g} s" if worst else ""
    attempts = f" of {goodput.attempts} attempts" if goodput.attempts > 1 else ""
    return f"Goodput {100 * goodput.share:.1f} % of {goodput.wall_s:,.3g} s{attempts}{lost}."
