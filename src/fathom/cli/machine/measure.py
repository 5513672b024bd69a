"""`fathom machine measure`: the ceilings of this machine."""

from __future__ import annotations

import json as json_library
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fathom.cli.console import say
from fathom.cli.measuring import measured

if TYPE_CHECKING:
    from fathom.machine import Ceiling, Missing

EXAMPLES = """Examples:

fathom machine measure

fathom machine measure --only hbm,matmul.bf16

fathom machine measure --full --gpu all --data /mnt/dataset"""


def measure(
    full: Annotated[bool, typer.Option("--full", help="Everything, not the quick set alone.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Ceilings by id, first part of one, or pattern.", metavar="ID,…")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Which GPU. [default: the first visible one]", metavar="N|all")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder on the disk that data is read from. [default: here]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure beside other processes on the GPU.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the machine file.")] = False,
) -> None:
    """Measure what this machine can do, and remember it: bandwidths, rates, latencies, links, disk."""
    from fathom import gauges
    from fathom.machine import inventory

    machine = inventory()
    gauges.recall(machine)  # a damaged file is better known before the measurement than after it
    plan = gauges.plan(machine, only=only or (), full=full, gpu=gpu, data=data, force=force)
    ceilings, missing = measured(plan)
    kept, place = gauges.keep(machine, ceilings, missing)
    if json:
        print(json_library.dumps(kept, indent=1))
    else:
        _print(ceilings, missing)
    say(f"kept in {place}")


def _print(ceilings: Sequence[Ceiling], missing: Sequence[Missing]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table("ceiling", "gpu", "value", "spread", "at", box=None, pad_edge=False, header_style="dim")
    table.columns[2].justify = table.columns[3].justify = "right"
    for found in ceilings:
        table.add_row(*_cells(found))
    if ceilings:
        console.print(table)
    for found in ceilings:
        for flag in found.flags:
            console.print(f"! {found.id}: {flag}", style="yellow", markup=False)
    for why, names in _by_reason(missing).items():
        console.print(f"not measured, because {why}: {', '.join(names)}", style="dim", markup=False)


def _by_reason(missing: Sequence[Missing]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for lack in missing:
        found.setdefault(lack.why, []).append(lack.id)
    return found


def _cells(found: Ceiling) -> tuple[str, ...]:
    spread = f"±{50 * (found.high - found.low) / found.value:.1f} %"
    device = "" if found.device is None else str(found.device)
    return found.id, device, figure(found.value, found.unit), spread, _place(found.at)


def figure(value: float, unit: str) -> str:
    """Three digits and a decimal prefix: 4.27 TB/s, 2.13 µs."""
    prefixes = {12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "µ", -9: "n"}
    power = next((p for p in prefixes if abs(value) >= 0.9995 * 10.0**p), -9)
    scaled = value / 10.0**power
    decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{decimals}f} {prefixes[power]}{unit}"


def _place(at: dict[str, Any]) -> str:
    """The size or shape that a value belongs to, in words."""
    return ", ".join(_part(name, value) for name, value in at.items())


def _part(name: str, value: Any) -> str:
    if name == "shape":
        return "×".join(map(str, value))
    if name.endswith("bytes"):
        return f"{value / 2**20:.4g} MiB {name.removesuffix('bytes').strip('_')}".strip()
    return value if isinstance(value, str) else f"{name} {value}"
