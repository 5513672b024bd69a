"""`fathom kernel`: kernel families in depth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fathom.cli.options import Machine
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.analysis.folding import Folding
    from fathom.analysis.measures import Portrait
    from fathom.api import Sounding
    from fathom.sounding import Store

EXAMPLES = """Examples:

fathom kernel train.fathom

fathom kernel train.fathom layer_norm --counters"""
NO_TIMELINE = "This sounding has no timeline of kernels; record one with `fathom run`."
NO_KERNELS = "This program ran on the processor, which has no kernels; `fathom report` has its ledger."
NO_SAMPLES = "No samples lie around this kernel; record with `fathom run --depth counters`."


def kernel(
    sounding: Annotated[Path, typer.Argument(help="A sounding, packed or not.")],
    pattern: Annotated[
        str | None,
        typer.Argument(
            help="The family's name, a part of it, a pattern with * and ?, or a regular expression."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every family, and every measure.")] = False,
    counters: Annotated[bool, typer.Option("--counters", help="Add every counter, as folded.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Draw the samples around a launch of the family to this .svg file.")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Of this rank; the first by default.")] = None,
    machine: Machine = None,
) -> None:
    """Say what limits a kernel family, and why; without a pattern, each of them in a line."""
    from fathom.api import open
    from fathom.recorder.dive import families_of
    from fathom.report.kernel import matching, print_kernels

    opened = open(sounding, machine=machine)
    if families := families_of(opened.store):
        _explain(opened.store, families, pattern, json)
        return
    folding, found = _portraits(opened, rank, machine)
    if svg:
        _draw(opened.store, folding, matching(found, pattern), svg)
    if json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(matching(found, pattern)) + b"\n")
    elif not svg:
        print_kernels(found, pattern, every=every, counters=counters)


def _explain(store: Store, families: list[str], pattern: str | None, json: bool) -> None:
    """What ncu's counters say about each family that the pattern names."""
    from dataclasses import asdict

    import msgspec

    from fathom.recorder.dive import explanation_of, spots_of
    from fathom.report.dive import print_dive
    from fathom.report.kernel import named

    chosen = [explanation_of(store, family) for family in named(families, pattern)]
    spots = spots_of(store) if len(families) == 1 else []
    if json:
        found = [{**asdict(one), "hot_spots": spots} for one in chosen]
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    for one in chosen:
        print_dive(one, spots)


def _portraits(opened: Sounding, rank: int | None, machine: Path | None) -> tuple[Folding, list[Portrait]]:
    from fathom.analysis.folding import counters_of
    from fathom.analysis.measures import portraits
    from fathom.machine.store import bounding

    devices = opened.examine().devices
    rank = devices[0].rank if rank is None and devices else rank
    chosen = [device for device in devices if device.rank == rank]
    if not chosen:
        ranks = ", ".join(str(one) for one in sorted({device.rank for device in devices}))
        held = f"Rank {rank} has no timeline; this sounding holds one of rank {ranks}."
        raise BadInputError(held if ranks else NO_TIMELINE)
    if all(device.device == "cpu" for device in chosen):
        raise BadInputError(NO_KERNELS)
    folding = counters_of(opened.store, chosen[0].rank)
    known = bounding(opened.store.machine, machine)
    found = [one for device in chosen for one in portraits(opened.store, device, known, folding)]
    return folding, sorted(found, key=lambda one: -one.ms)


def _draw(store: Store, folding: Folding, found: list[Portrait], path: Path) -> None:
    from fathom.analysis.folding import stretch_around
    from fathom.report.kernel import save_picture

    for one in found[:1]:
        stretch = stretch_around(store, one.rank, one.device, one.family, folding)
        if stretch is not None:
            return save_picture(stretch, one, path)
    raise BadInputError(NO_SAMPLES)
