"""`fathom export`: write a sounding in the format of another tool."""

from __future__ import annotations

from typer import Argument, BadParameter, Option

from fathom.cli.console import Machine, SoundingPath, examples
from fathom.visible import visible_line

FORMATS = ("perfetto", "parquet", "csv", "otel")
EXAMPLES = examples(
    "fathom export train.fathom --to perfetto train.pftrace   (then open it at ui.perfetto.dev)",
    "fathom export train.fathom --to csv tables/",
    "fathom export train.fathom --to otel http://localhost:4318/v1/traces",
)


def export(
    sounding: SoundingPath,
    target: str = Argument(
        metavar="FILE", help="File, folder (parquet, csv), or address (otel) to write to."
    ),
    to: str = Option(..., "--to", help=f"Format: {', '.join(FORMATS)}."),
    machine: Machine = None,
) -> None:
    """Write a sounding in the format of another tool.

    perfetto: a timeline with counters, ledger and findings as tracks. parquet, csv: one file per table.
    otel: steps and findings as spans, written to a file or sent to a collector.
    """
    from fathom.api import open

    if to not in FORMATS:
        raise BadParameter(f"'{visible_line(to)}' is not one of {', '.join(FORMATS)}.", param_hint="--to")
    print(visible_line(open(sounding, machine=machine).export(to, target)))
