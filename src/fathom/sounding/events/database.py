"""Read tables of SQLite databases that may come from anyone.

The file is opened read-only and immutable. Only stored columns of real tables are read, because a view or a
generated column may compute forever, and no more rows and text than a file of its size can hold: its pages
may refer to each other many times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import polars as pl

from fathom.errors import BadInputError, file_errors, unimportable
from fathom.regular import require_regular
from fathom.sounding.events.arrays import integers
from fathom.units import MIB

Row = tuple[Any, ...]
MAGIC = b"SQLite format 3\0"
_BATCH = 4096  # rows
_LONGEST = 1 << 16  # characters that are read of a text
_LARGEST = 64 * MIB  # most bytes of one row
_LEAST_ROW = 4  # bytes that a row takes at least
_FREE_TEXT = 64 * MIB  # bytes of text that any file may have
_TYPES = {int: pl.Int64, float: pl.Float64, str: pl.String}
_LEAST_VERSION = (3, 37)  # of SQLite: earlier ones do not list tables apart from views


class Database:
    """Tables of a database. Raises BadInputError if it cannot be opened, or is damaged."""

    def __init__(self, file: Path, path: Path | None = None) -> None:
        self.path = path or file  # as errors name it, if `file` is only made from it
        with file_errors(file):
            self._size = require_regular(file)
        self._connection = self._open(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _open(self, file: Path) -> sqlite3.Connection:
        address = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(address, uri=True)
        except sqlite3.Error as error:
            raise self.bad(f"SQLite cannot open it ({error})") from None
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
        connection.text_factory = lambda text: text.decode(errors="replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def bad(self, why: str) -> BadInputError:
        """Return the error for a file that cannot be imported."""
        return unimportable(self.path, why)

    @cached_property
    def tables(self) -> frozenset[str]:
        """Names of the tables that store rows, without views and virtual tables."""
        if sqlite3.sqlite_version_info < _LEAST_VERSION:
            raise self.bad(f"Python's SQLite {sqlite3.sqlite_version} is too old; use a newer Python")
        rows = [row for block in self._bounded("PRAGMA table_list") for row in block]
        return frozenset(str(name) for _, name, kind, *_ in rows if kind == "table")

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's stored columns; empty if there is no such table."""
        if table not in self.tables:
            return frozenset()
        rows = [row for block in self._bounded(f"PRAGMA table_xinfo({_quoted(table)})") for row in block]
        return frozenset(str(name) for _, name, *_, hidden in rows if not hidden)

    def read(self, table: str, wanted: Mapping[str, type]) -> pl.DataFrame:
        """Return the `wanted` columns (name to int, float or str) that the table has.

        Values of another type are null. A table that does not exist has no columns.
        """
        there = self.columns(table)
        kept = {name: kind for name, kind in wanted.items() if name in there}
        if not kept:
            return pl.DataFrame()
        chosen = ", ".join(
            f"substr({_quoted(name)}, 1, {_LONGEST})" if kind is str else _quoted(name)
            for name, kind in kept.items()
        )
        blocks = self._bounded(f"SELECT {chosen} FROM {_quoted(table)}")
        return pl.concat([_frame(block, kept) for block in blocks] or [_frame([], kept)])

    def read_all(self, table: str, wanted: Mapping[str, type]) -> pl.DataFrame:
        """Return the `wanted` columns like `read`, and those that the table lacks as null."""
        rows = self.read(table, wanted)
        if not rows.width:
            return pl.DataFrame(schema={name: _TYPES[kind] for name, kind in wanted.items()})
        lacking = {name: kind for name, kind in wanted.items() if name not in rows.columns}
        return rows.with_columns(pl.lit(None, _TYPES[kind]).alias(name) for name, kind in lacking.items())

    def _bounded(self, query: str) -> Iterator[list[Row]]:
        """Yield rows in blocks. Raises BadInputError if they are more than the file can hold."""
        rows = text = 0
        for block in self._blocks(query):
            rows += len(block)
            text += sum(len(value) for row in block for value in row if isinstance(value, str))
            if rows > max(self._size // _LEAST_ROW, _BATCH) or text > self._size + _FREE_TEXT:
                raise self.bad("it claims more rows than its size can hold")
            yield block

    def _blocks(self, query: str) -> Iterator[list[Row]]:
        try:
            with closing(self._connection.execute(query)) as cursor:
                while block := cursor.fetchmany(_BATCH):
                    yield block
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # in a name
            raise self.bad(f"its database is damaged ({error}); export it again") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _frame(rows: list[Row], columns: Mapping[str, type]) -> pl.DataFrame:
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    return pl.DataFrame(
        [_column(name, kind, column) for (name, kind), column in zip(columns.items(), values, strict=True)]
    )


def _column(name: str, kind: type, values: list[Any]) -> pl.Series:
    if kind is int:
        return integers(name, values)
    accepted = (int, float) if kind is float else kind
    kept = [kind(value) if isinstance(value, accepted) else None for value in values]
    return pl.Series(name, kept, _TYPES[kind])
