"""Damage to soundings as data: each damage is a dict that JSON can hold, and `apply` makes it in a folder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import polars as pl
from hypothesis import strategies as st

from fathom.sounding import TABLES
from tests.fuzz import files
from tests.fuzz.values import FLOATS, INTEGERS, TEXTS, Damage

TYPES = {
    "String": pl.String, "Int64": pl.Int64, "Int8": pl.Int8, "UInt64": pl.UInt64, "Float64": pl.Float64,
    "Boolean": pl.Boolean, "Null": pl.Null, "List": pl.List(pl.Int64), "Datetime": pl.Datetime("ns"),
    "Binary": pl.Binary,
}  # fmt: skip

_columns = st.sampled_from([(table, column) for table, columns in TABLES.items() for column in columns])
_values = st.sampled_from([*INTEGERS, *FLOATS, *TEXTS, None])
_rows = st.sampled_from(["all", "first", "last", "middle", "half"])


def tables() -> st.SearchStrategy[Damage]:
    """Damage to one column of one table."""
    change = st.one_of(
        st.fixed_dictionaries({"do": st.just("set"), "value": _values, "rows": _rows}),
        st.fixed_dictionaries({"do": st.just("retype"), "type": st.sampled_from(sorted(TYPES))}),
        st.fixed_dictionaries({"do": st.sampled_from(["drop", "shuffle", "reverse", "negate"])}),
        st.fixed_dictionaries({"do": st.just("add"), "value": st.sampled_from(INTEGERS), "rows": _rows}),
    )
    return st.tuples(_columns, change).map(
        lambda drawn: {"table": drawn[0][0], "column": drawn[0][1], **drawn[1]}
    )


def whole_tables() -> st.SearchStrategy[Damage]:
    """Damage to a file of a table."""
    do = st.sampled_from(
        ["remove", "empty", "double", "only column", "foreign", "folder", "fifo", "zero", "loop"]
    )
    return st.fixed_dictionaries({"table": st.sampled_from(sorted(TABLES)), "do": do})


def apply(folder: Path, damage: Damage) -> None:
    """Make the damage; damage to something that is not there changes nothing."""
    if "file" in damage:
        files.apply(folder / damage["file"], damage)
        return
    for file in folder.glob(f"rank-*/{damage['table']}.parquet"):
        with suppress(pl.exceptions.PolarsError, OSError):  # earlier damage made it unreadable
            if "column" in damage:
                _column(file, damage)
            else:
                _table(file, damage["do"])


def _table(file: Path, do: str) -> None:
    if do in ("empty", "double", "only column"):
        frame = pl.read_parquet(file)
        changed = {"empty": frame.head(0), "double": pl.concat([frame, frame]), "only column": frame[:, :1]}[
            do
        ]
        changed.write_parquet(file)
        return
    file.unlink()
    if do == "foreign":
        pl.DataFrame({"a": [1]}).write_parquet(file)
    elif do == "folder":
        file.mkdir()
    elif do == "fifo":
        os.mkfifo(file)
    elif do == "zero":
        file.symlink_to("/dev/zero")
    elif do == "loop":
        file.symlink_to(file)


def _column(file: Path, damage: Damage) -> None:
    if not file.is_file():
        return
    frame, name = pl.read_parquet(file), damage["column"]
    if name not in frame.columns:
        return
    try:
        changed = _changed(frame, name, damage)
    except (pl.exceptions.PolarsError, OverflowError, TypeError):
        return  # this type cannot hold it
    changed.write_parquet(file)


def _changed(frame: pl.DataFrame, name: str, damage: Damage) -> pl.DataFrame:
    do, column = damage["do"], frame[name]
    if do == "drop":
        return frame.drop(name)
    if do == "retype":
        try:
            return frame.with_columns(pl.col(name).cast(TYPES[damage["type"]], strict=False))
        except pl.exceptions.PolarsError:
            return frame.with_columns(pl.lit(None, TYPES[damage["type"]]).alias(name))
    if do == "shuffle":
        return frame.with_columns(column.shuffle(seed=1))
    if do == "reverse":
        return frame.with_columns(column.reverse())
    if do == "negate":
        return frame.with_columns(-pl.col(name))
    value = pl.lit(damage["value"])
    new = (pl.col(name) + value if do == "add" else value).cast(column.dtype)
    return frame.with_columns(
        pl.when(_chosen(frame.height, damage["rows"])).then(new).otherwise(name).alias(name)
    )


def _chosen(height: int, rows: str) -> pl.Expr:
    at = pl.int_range(pl.len())
    return {
        "all": pl.lit(True),
        "first": at == 0,
        "last": at == height - 1,
        "middle": at == height // 2,
        "half": at % 2 == 0,
    }[rows]
