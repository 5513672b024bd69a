"""`fathom kernel`: what limits each kernel family."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from fathom.cli.console import PATTERN, Machine, SoundingPath, examples, write_json
from fathom.cli.progress import waiting

if TYPE_CHECKING:
    from fathom.sounding import Store

EXAMPLES = examples("fathom kernel train.fathom", "fathom kernel train.fathom layer_norm --counters")


def kernel(
    sounding: SoundingPath,
    pattern: str | None = Argument(None, help=PATTERN),
    json: bool = Option(False, "--json", help="Print everything as JSON."),
    every: bool = Option(False, "--all", help="Show every family and every measure."),
    counters: bool = Option(False, "--counters", help="Add all counters of the family."),
    svg: Path | None = Option(None, help="Draw the samples around a launch of the family to this .svg file."),
    rank: int | None = Option(None, help="Rank to show; by default the first."),
    machine: Machine = None,
) -> None:
    """Show what limits a kernel family and why; without a pattern, list all families."""
    from fathom.api import open
    from fathom.report import print_kernels, save_samples

    opened = open(sounding, machine=machine)
    if families := _imported(opened.store):
        _explain(opened.store, families, pattern, json)
        return
    with waiting("folding counters onto kernels"):
        opened.kernel(rank=rank)
    if svg:
        stretch, portrait = opened.samples(pattern, rank)
        save_samples(stretch, portrait, svg)
    if json:
        write_json(opened.kernel(pattern, rank))
    elif not svg:
        print_kernels(opened.kernel(rank=rank), pattern, every=every, counters=counters)


def _imported(store: Store) -> list[str]:
    """Return the families of an imported ncu result, which has no steps; [] for other soundings."""
    if any(file.endswith("/steps.parquet") for file in store.manifest.checksums):
        return []
    from fathom.recorder.dive import families_of

    return families_of(store)


def _explain(store: Store, families: list[str], pattern: str | None, json: bool) -> None:
    """Print, from ncu's counters, what limits each family that matches the pattern."""
    from fathom.recorder.dive import explanation_of, spots_of
    from fathom.report import dive_content, named, print_dive

    chosen = [explanation_of(store, family) for family in named(families, pattern)]
    spots = spots_of(store) if len(families) == 1 else []
    if json:
        write_json([dive_content(explanation, spots) for explanation in chosen])
        return
    for explanation in chosen:
        print_dive(explanation, spots)
