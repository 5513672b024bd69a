"""`fathom query`: SQL over a sounding's tables."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Literal

from typer import Argument, Option

from fathom.cli.console import SoundingPath, examples
from fathom.visible import escaped, visible

if TYPE_CHECKING:
    import polars as pl

EXAMPLES = examples(
    "fathom query train.fathom    (lists the tables and their columns)",
    'fathom query train.fathom "SELECT name, count(*) AS n FROM kernels GROUP BY name ORDER BY n DESC"',
    'fathom query train.fathom "SELECT entry, detail, ms FROM ledger ORDER BY ms DESC" --format csv',
)

Format = Literal["table", "csv", "json"]


def query(
    sounding: SoundingPath,
    sql: str | None = Argument(
        None, metavar="SELECT", help="One SELECT over the tables. [default: list the tables]"
    ),
    format: Format = Option("table", help="How to print the rows."),
    limit: int | None = Option(None, min=0, help="Maximum number of rows."),
) -> None:
    """Run SQL over the recorded tables and the computed ones: ledger, windows, collectives, pipeline …"""
    from fathom.api import open

    opened = open(sounding)
    rows = opened.tables() if sql is None else opened.sql(sql)
    rows = rows if limit is None else rows.head(min(limit, rows.height))
    if format == "csv":
        from fathom.report import without_lists

        text = without_lists(rows).write_csv()  # a program reads it exactly
        print(visible(text) if sys.stdout.isatty() else text, end="")
    elif format == "json":
        print(escaped(rows.write_json()))
    elif sql is None:
        _print_names(rows)
    else:
        _print_table(rows)


def _print_names(rows: pl.DataFrame) -> None:
    for name, count, columns in rows.iter_rows():
        head = f"{name:<16}{'computed' if count is None else count:>9}  "
        room = max(shutil.get_terminal_size().columns - len(head), 40)
        lines = textwrap.wrap(columns or "", room) or [""]
        print(head + f"\n{'':<{len(head)}}".join(lines))


def _print_table(rows: pl.DataFrame) -> None:
    import polars as pl

    look = pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=10_000, fmt_str_lengths=80)
    look.set_tbl_hide_dataframe_shape(True).set_tbl_hide_column_data_types(True)
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    look.set_tbl_formatting("UTF8_BORDERS_ONLY" if unicode else "ASCII_BORDERS_ONLY")
    with look:
        print(visible(str(rows)))
