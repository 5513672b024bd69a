"""`fathom merge`: join the soundings of a job's nodes."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.cli.console import Replace, examples
from fathom.visible import visible_line

EXAMPLES = examples(
    "fathom merge node0.fathom node1.fathom -o job.fathom",
    "fathom merge node*.fathom.zip -o job.fathom --ranks 0,7,64-71",
)


def merge(
    soundings: list[Path] = Argument(metavar="SOUNDING…", help="Soundings of one job, packed or not."),
    output: Path = Option(..., "-o", "--output", help="Path of the merged sounding."),
    ranks: str | None = Option(None, "--ranks", help="Only these ranks, like 0,7,64-71."),
    replace: Replace = False,
) -> None:
    """Join the soundings of a job's nodes into one sounding with all their ranks."""
    from fathom.cli.progress import waiting
    from fathom.sounding import merge as merge_stores
    from fathom.sounding import numbers, open_store

    wanted = None if ranks is None else numbers(ranks)
    with waiting(f"merging {len(soundings)} soundings"):
        stores = [open_store(path) for path in soundings]
        store = merge_stores(stores, output, ranks=wanted, replace=replace)
    count, path = len(store.ranks), visible_line(str(store.path))
    print(f"{path}: {count} rank{'s' if count != 1 else ''} of {len(soundings)} soundings")
    for problem in store.manifest.problems:
        print(f"  problem: {visible_line(problem.text)}")
