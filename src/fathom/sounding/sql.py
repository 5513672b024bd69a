"""Run SQL over named tables, with errors that suggest known names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import polars as pl

from fathom.errors import BadInputError

_CHANGES = re.compile(
    r"(?i)(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:delete|insert|update|truncate|drop|create|alter)\b", re.S
)
_QUOTED = re.compile(r"""["'`]([^"'`]+)["'`]""")
NO_CHANGE = "This SQL is not a query; write a SELECT, because a sounding is never changed."


def select(frames: Mapping[str, pl.LazyFrame], query: str, others: Sequence[str] = ()) -> pl.DataFrame:
    """Run one SELECT over `frames`. Raises BadInputError, naming similar known names, for an invalid query.

    `others` are names of tables that exist but are not in `frames`; they are listed in errors.
    """
    if _CHANGES.match(query):
        raise BadInputError(NO_CHANGE)
    try:
        frame = pl.SQLContext(frames).execute(query).collect()
    except pl.exceptions.PolarsError as error:
        raise BadInputError(_explain(frames, [*frames, *others], error)) from None
    if not frame.width:
        raise BadInputError(NO_CHANGE)
    return frame


def _explain(frames: Mapping[str, pl.LazyFrame], tables: list[str], error: Exception) -> str:
    text = str(error).strip().splitlines()[0].rstrip(".")
    if text.startswith("parquet:"):
        return f"A table of the sounding is damaged ({text}); record or import again."
    name = next(iter(_QUOTED.findall(text)), "")
    if isinstance(error, pl.exceptions.ColumnNotFoundError):
        columns = sorted({column for frame in frames.values() for column in frame.collect_schema().names()})
        return f"There is no column '{name}'{_nearest(name, columns)}."
    if "relation" in text and "not found" in text:
        return f"There is no table '{name}'{_nearest(name, tables)}; the tables are {', '.join(tables)}."
    return f"This SQL cannot be run: {text}."


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)
    return f" (the nearest: {', '.join(close)})" if close else ""
