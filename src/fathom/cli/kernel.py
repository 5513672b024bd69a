"""`fathom kernel`: kernel families in depth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fathom.cli.options import Machine
from fathom.cli.progress import waiting
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.analysis.measures import Portrait
    from fathom.sounding import Store

EXAMPLES = """Examples:

fathom kernel train.fathom

fathom kernel train.fathom layer_norm --counters"""
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

    opened = open(sounding, machine=machine)
    if families := _imported(opened.store):
        _explain(opened.store, families, pattern, json)
        return
    with waiting("folding counters onto kernels"):
        opened.kernel(rank=rank)
    if svg:
        _draw(opened.store, opened.kernel(pattern, rank), svg)
    if json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(opened.kernel(pattern, rank)) + b"\n")
    elif not svg:
        from fathom.report import print_kernels

        print_kernels(opened.kernel(rank=rank), pattern, every=every, counters=counters)


def _imported(store: Store) -> list[str]:
    """The families of an imported result of ncu, which has no steps; [] of anything else."""
    if any(file.endswith("/steps.parquet") for file in store.manifest.checksums):
        return []
    from fathom.recorder.dive import families_of

    return families_of(store)


def _explain(store: Store, families: list[str], pattern: str | None, json: bool) -> None:
    """Explain each family that matches the pattern by ncu's counters."""
    import msgspec

    from fathom.recorder.dive import explanation_of, spots_of
    from fathom.report import named, print_dive

    chosen = [explanation_of(store, family) for family in named(families, pattern)]
    spots = spots_of(store) if len(families) == 1 else []
    if json:
        content = [{**msgspec.to_builtins(explanation), "hot_spots": spots} for explanation in chosen]
        sys.stdout.buffer.write(msgspec.json.encode(content) + b"\n")
        return
    for explanation in chosen:
        print_dive(explanation, spots)


def _draw(store: Store, portraits: list[Portrait], path: Path) -> None:
    from fathom.analysis.folding import counters_of, stretch_around
    from fathom.report import save_samples

    for portrait in portraits[:1]:
        folding = counters_of(store, portrait.rank)
        stretch = stretch_around(store, portrait.rank, portrait.device, portrait.family, folding)
        if stretch is not None:
            return save_samples(stretch, portrait, path)
    raise BadInputError(NO_SAMPLES)
