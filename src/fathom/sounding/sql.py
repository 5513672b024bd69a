"""Run SQL over named tables, and over nothing else, with errors that suggest known names.

Queries that cannot grow run in this process: one SELECT of one table with common functions. Others run in a
child process with limits on time and memory, because polars has neither, and a long expression can crash it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl

from fathom.errors import BadInputError, first_line
from fathom.sounding import sql_child
from fathom.units import MIB

_FIRST = {"select", "with", "from", "values", "show", "explain", "("}
_TOKEN = re.compile(
    r"\s+|--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<text>'(?:[^']|'')*'?)|(?P<quoted>\"(?:[^\"]|\"\")*\"?|`[^`]*`?)"
    r"|(?P<word>[^\W\d]\w*)|(?P<other>[\d.]+|.)",
    re.S,
)
_READING = re.compile(r"[\"`]?(?:read|scan)_\w*[\"`]?", re.IGNORECASE)
_QUOTED = re.compile(r"""["'`]([^"'`]+)["'`]""")
_GROWING = {"join", "with", "union", "intersect", "except", "values", "over", "explain", "show"}
_HARMLESS = frozenset(  # functions, and words that a parenthesis may follow
    """abs avg ceil coalesce count floor greatest ifnull least length lower max mean median min nullif
    quantile_cont quantile_disc round sign sqrt starts_with stddev sum upper variance in as and or not when
    then by from where having cast distinct on select like between""".split()  # noqa: SIM905
)
MOST_TOKENS, MOST_CHARACTERS = 2_000, 100_000
NO_CHANGE = "This SQL is not a query; write a SELECT, because a sounding is never changed."
NO_FILES = "This SQL reads files; only the tables of a sounding can be queried."
TOO_LONG = f"This SQL is too long; write at most {MOST_TOKENS:,} words and operators."


def select(
    frames: Mapping[str, pl.LazyFrame],
    query: str,
    others: Sequence[str] = (),
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> pl.DataFrame:
    """Run one SELECT over `frames`. Raises BadInputError, naming similar known names, for an invalid query.

    `others` are names of tables that exist but are not in `frames`; they are listed in errors. A query that
    takes more time or memory than the limits in `sql_child`, or whose result has more than `most_rows` rows
    or `most_bytes` bytes, is a BadInputError too.
    """
    tokens = _tokens(query)
    _require_query(tokens)
    try:
        run = run_here if _is_small(tokens) else sql_child.run
        frame = run(frames, query, most_rows, most_bytes)
    except sql_child.SqlError as error:
        raise BadInputError(_explain(frames, [*frames, *others], error)) from None
    if not frame.width:
        raise BadInputError(NO_CHANGE)
    return frame


def run_here(
    frames: Mapping[str, pl.LazyFrame],
    query: str,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> pl.DataFrame:
    """Run a query in this process. Raises SqlError, also for a larger result."""
    try:
        rows = pl.SQLContext(frames).execute(query)
        frame = (rows if most_rows is None else rows.head(most_rows + 1)).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise sql_child.SqlError(type(error).__name__, str(error)) from None
    if most_rows is not None and frame.height > most_rows:
        raise sql_child.SqlError(
            "Large", f"its result has more than {most_rows:,} rows; aggregate, or add a LIMIT"
        )
    if most_bytes is not None and frame.estimated_size() > most_bytes:
        most = f"{most_bytes / MIB:.0f} MiB"
        raise sql_child.SqlError(
            "Large", f"its result is larger than {most}; select fewer columns, or aggregate"
        )
    return frame


def _tokens(query: str) -> list[str]:
    """Return words, operators and texts of the query, without spaces and comments."""
    if len(query) > MOST_CHARACTERS:
        raise BadInputError(TOO_LONG)
    matches = _TOKEN.finditer(query)
    return [match[0] for match in matches if match.lastgroup is not None]


def _require_query(tokens: list[str]) -> None:
    if not tokens or tokens[0].lower() not in _FIRST:
        raise BadInputError(NO_CHANGE)
    if any(_READING.fullmatch(name) and after == "(" for name, after in pairwise(tokens)):
        raise BadInputError(NO_FILES)
    if len(tokens) > MOST_TOKENS:
        raise BadInputError(TOO_LONG)


def _is_small(tokens: list[str]) -> bool:
    """Return whether the result can be no larger than the table that the query reads."""
    words = [token.lower() for token in tokens]
    calls = {name for name, after in pairwise(words) if after == "(" and name[0].isalpha()}
    listed = words[words.index("from") :] if "from" in words else []
    tables = listed[: next((i for i, word in enumerate(listed) if word in ("where", "group", "order")), None)]
    return (
        len(words) < 300
        and words.count("select") == 1
        and not _GROWING.intersection(words)
        and "," not in tables
        and calls <= _HARMLESS
    )


def _explain(frames: Mapping[str, pl.LazyFrame], tables: list[str], error: sql_child.SqlError) -> str:
    text = first_line(error)
    if text.startswith("parquet:"):
        return f"A table of the sounding is damaged ({text}); record or import it again."
    name = next(iter(_QUOTED.findall(text)), "")
    if error.kind == "ColumnNotFoundError":
        columns = sorted({column for frame in frames.values() for column in frame.collect_schema().names()})
        return f"There is no column '{name}'{_nearest(name, columns)}."
    if "relation" in text and "not found" in text:
        return f"There is no table '{name}'{_nearest(name, tables)}; the tables are {', '.join(tables)}."
    return f"This SQL cannot be run: {text}."


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.5)
    return f" (the nearest: {', '.join(close)})" if close else ""
