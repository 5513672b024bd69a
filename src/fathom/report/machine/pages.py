"""Whole pages: the machine, its ceilings alone, a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from fathom.machine import Ceiling, Missing
from fathom.report.machine import ceilings as ceilings_table
from fathom.report.machine import inventory
from fathom.report.machine.show import show, width, wrapped

if TYPE_CHECKING:
    from fathom.machine.compare import Comparison

HINT = "No ceilings of this machine are known; `fathom machine measure` measures them."


def print_machine(
    machine: dict[str, Any],
    ceilings: Sequence[Ceiling] = (),
    missing: Sequence[Missing] = (),
    console: Console | None = None,
) -> None:
    """Print the inventory, then the ceilings or how to measure them."""
    show(_machine(machine, ceilings, missing, width(console)), console)


def _machine(
    machine: dict[str, Any], ceilings: Sequence[Ceiling], missing: Sequence[Missing], cells: int
) -> Iterator[Text]:
    yield Text()
    yield from inventory.heading(machine, cells)
    yield Text()
    yield from inventory.body(machine, cells)
    yield Text()
    if ceilings or missing:
        yield from ceilings_table.lines(machine, ceilings, missing, cells)
    else:
        why = [f"{entry['what']}: {entry['why']}" for entry in machine.get("abstained") or []]
        yield from (Text(line, "yellow" if why else "dim") for line in wrapped("; ".join(why) or HINT, cells))
    yield Text()


def print_ceilings(
    machine: dict[str, Any],
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing] = (),
    console: Console | None = None,
) -> None:
    """Print only the ceilings, beside the datasheets of `machine`'s chips."""
    show(ceilings_table.lines(machine, ceilings, missing, width(console)), console)


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print which results carry over, why others do not, and by how much the ceilings differ."""
    from fathom.report.machine import comparison as page

    show(page.lines(comparison, width(console)), console)
