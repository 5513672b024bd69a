"""`fathom merge`: join the soundings of a job's nodes."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.cli.console import Replace, examples
from fathom.visible import visible_line

EXAMPLES = examples(
    "fathom merge node0.fathom node1.fathom -o job.fathom",
    "fathom merge job -o job.fathom   (the parts in the directory job)",
    "fathom merge s3://bucket/job -o job.fathom",
    "fathom merge node*.fathom.zip -o job.fathom --ranks 0,7,64-71",
)


def merge(
    soundings: list[str] = Argument(
        metavar="SOUNDING…", help="Soundings of one job, packed or not, directories of them, or URLs."
    ),
    output: Path = Option(..., "-o", "--output", help="Path of the merged sounding."),
    ranks: str | None = Option(None, "--ranks", help="Only these ranks, like 0,7,64-71."),
    replace: Replace = False,
) -> None:
    """Join the soundings of a job's nodes into one sounding with all their ranks."""
    from fathom.cli.progress import waiting
    from fathom.sounding import collect, numbers
    from fathom.sounding import merge as merge_stores

    wanted = None if ranks is None else numbers(ranks)
    with waiting(f"merging {', '.join(soundings[:3])}{' …' if len(soundings) > 3 else ''}"):
        parts = collect(soundings)
        store = merge_stores(parts.stores, output, ranks=wanted, reasons=parts.missing, replace=replace)
    count, number = len(store.ranks), len(parts.stores)
    origin = f"{number} sounding{'s' if number != 1 else ''}"
    print(visible_line(f"{store.path}: {count} rank{'s' if count != 1 else ''} of {origin}"))
    for problem in store.manifest.problems:
        print(f"  problem: {visible_line(problem.text)}")
