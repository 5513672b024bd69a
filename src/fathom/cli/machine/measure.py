"""`fathom machine measure`: the ceilings of this machine."""

from __future__ import annotations

import json as json_library
from pathlib import Path
from typing import Annotated, Any

import typer

from fathom.cli.console import say
from fathom.cli.measuring import measured

EXAMPLES = """Examples:

fathom machine measure

fathom machine measure --only hbm,matmul.bf16

fathom machine measure --only counters

fathom machine measure --full --gpu all --data /mnt/dataset"""


def measure(
    full: Annotated[bool, typer.Option("--full", help="Everything, not the quick set alone.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Ceilings by id, first part of one, or pattern; counters: which of them stream.",
            metavar="ID,…",
        ),
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
    from fathom.report.machine import print_ceilings

    machine = inventory()
    gauges.recall(machine)  # a damaged file is better known before the measurement than after it
    names = [name for names in only or () for name in names.split(",") if name]
    if "counters" in names:
        _qualify(machine, gpu, force, json)
        names.remove("counters")
        if not names:
            return
    plan = gauges.plan(machine, only=names, full=full, gpu=gpu, data=data, force=force)
    ceilings, missing = measured(plan)
    kept, place = gauges.keep(machine, ceilings, missing)
    if json:
        print(json_library.dumps(kept, indent=1))
    else:
        print_ceilings(kept, ceilings, missing)
    say(f"kept in {place}")


def _qualify(machine: dict[str, Any], gpu: str | None, force: bool, json: bool) -> None:
    from fathom.gauges import counters

    devices = (int(gpu),) if gpu and gpu.isdigit() else None
    found = counters.qualify(machine, force=force, devices=devices)
    _, place = counters.keep_counters(machine, found)
    if json:
        print(json_library.dumps(found, indent=1))
        return
    print(
        f"{sum(map(len, found['groups']))} counters stream, in {len(found['groups'])} groups of one pass each"
    )
    for name, why in found["refused"].items():
        print(f"  {name}: {why}")
    say(f"kept in {place}")
