"""Damage to SQLite databases as data: values, rows, columns and tables of what profilers export."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.values import FLOATS, INTEGERS, TEXTS, Damage

PREFIX = "sql "
_SET = "UPDATE {table} SET {column} = :value"
_WORK = {
    "set": _SET,
    "set first": _SET + " WHERE rowid = (SELECT min(rowid) FROM {table})",
    "set half": _SET + " WHERE rowid % 2",
    "negate": "UPDATE {table} SET {column} = -{column}",
    "add": "UPDATE {table} SET {column} = {column} + :value",
    "rename": "ALTER TABLE {table} RENAME COLUMN {column} TO other",
    "drop column": "ALTER TABLE {table} DROP COLUMN {column}",
    "drop table": "DROP TABLE {table}",
    "empty": "DELETE FROM {table}",
    "double": "INSERT INTO {table} SELECT * FROM {table}",
}


def rows_of(*names: str) -> st.SearchStrategy[Damage]:
    """Damage to the n-th column of a database, or to its table."""
    return st.fixed_dictionaries(
        {
            "file": st.sampled_from(names),
            "at": st.integers(0, 10_000),
            "do": st.sampled_from(["set", "set first", "set half", *_WORK]).map(PREFIX.__add__),
            "value": st.sampled_from([None, *INTEGERS, *FLOATS, *TEXTS]),
        }
    )


def apply(file: Path, damage: Damage) -> None:
    """Make the damage; a file without tables stays as it is."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(file)) as base:
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [
            (table, name) for table in tables for _, name, *_ in base.execute(f'PRAGMA table_info("{table}")')
        ]
        if not columns:
            return
        table, column = columns[damage["at"] % len(columns)]
        sql = _WORK[damage["do"].removeprefix(PREFIX)]
        base.execute(sql.format(table=f'"{table}"', column=f'"{column}"'), {"value": damage["value"]})
        base.commit()
