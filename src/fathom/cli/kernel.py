"""`fathom kernel`: kernel families in depth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fathom.analysis.measures import Portrait

EXAMPLES = """Examples:

fathom kernel train.fathom

fathom kernel train.fathom layer_norm --counters"""


NO_TIMELINE = "This sounding has no timeline of kernels; record one with `fathom run`."


def kernel(
    sounding: Annotated[Path, typer.Argument(help="A sounding, packed or not.")],
    pattern: Annotated[
        str | None, typer.Argument(help="A part of the family's name, or a pattern with * and ?.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every family, and every measure.")] = False,
    counters: Annotated[bool, typer.Option("--counters", help="Add every counter, as folded.")] = False,
    rank: Annotated[int | None, typer.Option(help="Of this rank; the first by default.")] = None,
    machine: Annotated[
        Path | None,
        typer.Option(help="A machine file whose ceilings stand in where the sounding holds none."),
    ] = None,
) -> None:
    """Say what limits a kernel family, and why; without a pattern, each of them in a line."""
    from fathom.report.kernel import print_kernels

    found = _portraits(sounding, rank, machine)
    if json:
        import msgspec

        from fathom.report.kernel import matching

        sys.stdout.buffer.write(msgspec.json.encode(matching(found, pattern)) + b"\n")
    else:
        print_kernels(found, pattern, every=every, counters=counters)


def _portraits(sounding: Path, rank: int | None, machine: Path | None) -> list[Portrait]:
    from fathom.analysis.folding import counters_of
    from fathom.analysis.measures import portraits
    from fathom.api import open
    from fathom.errors import BadInputError
    from fathom.machine.store import bounding

    opened = open(sounding, machine=machine)
    devices = opened.examine().devices
    rank = devices[0].rank if rank is None and devices else rank
    chosen = [device for device in devices if device.rank == rank]
    if not chosen:
        ranks = ", ".join(str(one) for one in sorted({device.rank for device in devices}))
        held = f"Rank {rank} has no timeline; this sounding holds one of rank {ranks}."
        raise BadInputError(held if ranks else NO_TIMELINE)
    folding = counters_of(opened.store, chosen[0].rank)
    known = bounding(opened.store.machine, machine)
    found = [one for device in chosen for one in portraits(opened.store, device, known, folding)]
    return sorted(found, key=lambda one: -one.ms)
