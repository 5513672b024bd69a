"""`fathom query`: SQL over a sounding's tables."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from fathom.cli.console import SoundingPath, examples
from fathom.visible import escaped, visible, visible_line

if TYPE_CHECKING:
    import polars as pl

EXAMPLES = examples(
    "fathom query train.fathom    (lists the tables and their columns)",
    'fathom query train.fathom "SELECT name, count(*) AS n FROM kernels GROUP BY name ORDER BY n DESC"',
    'fathom query train.fathom "SELECT entry, detail, ms FROM ledger ORDER BY ms DESC" --format csv',
)

LEAST = 40  # characters of a table's columns beside its name
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
        room = shutil.get_terminal_size().columns - len(head)
        if room < LEAST:  # the columns are below the name
            head, room = f"{head.rstrip()}\n    ", max(room + len(head) - 4, LEAST)
        lines = textwrap.wrap(columns or "", room) or [""]
        print(head + f"\n{'':<{len(head.rpartition(chr(10))[2])}}".join(lines))


def _print_table(rows: pl.DataFrame) -> None:
    """Print the rows as a table, or with a line per column on a terminal that is too narrow for it."""
    import polars as pl

    look = pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=10_000, fmt_str_lengths=80)
    look.set_tbl_hide_dataframe_shape(True).set_tbl_hide_column_data_types(True)
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    look.set_tbl_formatting("UTF8_BORDERS_ONLY" if unicode else "ASCII_BORDERS_ONLY")
    with look:
        table = visible(str(rows))
    width = shutil.get_terminal_size().columns
    wide = rows.height and len(table.partition("\n")[0]) > width
    print(as_records(rows.iter_rows(named=True), width) if wide and sys.stdout.isatty() else table)


def as_records(rows: Iterable[dict[str, Any]], width: int) -> str:
    """Return rows with a line per column, and values wrapped to `width`; an empty line is between rows."""
    return "\n\n".join("\n".join(_record(row, width)) for row in rows)


def _record(row: dict[str, Any], width: int) -> Iterator[str]:
    wide = max(map(len, row), default=0) + 2
    for name, value in row.items():
        text = f"{value:.6g}" if isinstance(value, float) else visible_line(str(value))
        first, *rest = textwrap.wrap(text, max(width - wide, 1)) or [""]
        yield f"{name:<{wide}}{first}"
        yield from (f"{'':<{wide}}{line}" for line in rest)
