"""Machines as text: the inventory with its ceilings, the ceilings alone, a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.machine import Ceiling, Missing
from fathom.machine.model import Machine
from fathom.report.machine import ceilings as table
from fathom.report.machine import inventory
from fathom.report.machine.words import wrapped
from fathom.report.screen import show_within_margins

if TYPE_CHECKING:
    from fathom.machine.compare import MachineComparison

HINT = "No ceilings of this machine are known; `fathom machine measure` measures them."


def print_machine(
    machine: Machine,
    ceilings: Sequence[Ceiling] = (),
    missing: Sequence[Missing] = (),
    console: Console | None = None,
) -> None:
    """Print the inventory, then the ceilings or how to measure them."""
    show_within_margins(lambda width: _machine(machine, ceilings, missing, width), console)


def _machine(
    machine: Machine, ceilings: Sequence[Ceiling], missing: Sequence[Missing], cells: int
) -> Iterator[Text]:
    yield Text()
    yield from inventory.heading(machine, cells)
    yield Text()
    yield from inventory.body(machine, cells)
    yield Text()
    if ceilings or missing:
        yield from table.lines(machine, ceilings, missing, cells)
    else:
        why = [f"{entry['what']}: {entry['why']}" for entry in machine.get("abstained") or []]
        yield from (Text(line, "yellow" if why else "dim") for line in wrapped("; ".join(why) or HINT, cells))
    yield Text()


def print_ceilings(
    machine: Machine,
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing] = (),
    console: Console | None = None,
) -> None:
    """Print only the ceilings, beside the datasheets of `machine`'s chips."""
    show_within_margins(lambda width: table.lines(machine, ceilings, missing, width), console)


def print_comparison(comparison: MachineComparison, console: Console | None = None) -> None:
    """Print which results carry over, why others do not, and by how much the ceilings differ."""
    from fathom.report.machine.comparison import lines

    show_within_margins(lambda width: lines(comparison, width), console)
