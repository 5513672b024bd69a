"""SQL reads the tables it is given and nothing else, and ends in bounded time and memory."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.errors import BadInputError
from fathom.sounding import select, sql_child

FRAMES = {"t": pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "read_csv("]}).lazy()}
MANY = {"t": pl.DataFrame({"a": range(3_000_000)}).lazy()}

FILES = [
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM READ_CSV ('{file}')",
    "SELECT * FROM \"read_csv\"('{file}')",
    "SELECT * FROM `read_csv`('{file}')",
    "SELECT * FROM read_csv/* */('{file}')",
    "SELECT * FROM read_csv -- x\n('{file}')",
    "SELECT * FROM t JOIN read_csv('{file}') u ON true",
    "WITH c AS (SELECT * FROM read_csv('{file}')) SELECT * FROM c",
    "SELECT (SELECT max(a) FROM read_csv('{file}')) FROM t",
    "SELECT * FROM read_parquet('http://localhost:9/x')",
    "SELECT * FROM '{file}'",
    'SELECT * FROM "{file}"',
    "FROM read_json('{file}')",
    "FROM read_ipc('{file}')",
]


@pytest.mark.parametrize("query", FILES)
def test_no_query_reads_a_file(tmp_path, query):
    file = tmp_path / "secret.csv"
    file.write_text("a\n41\n")
    with pytest.raises(BadInputError):
        select(FRAMES, query.format(file=file))


@given(st.text("aA_()'\"`-/*\n ,t.;", max_size=20), st.text("'\"`-/*\n ", max_size=6))
@settings(max_examples=100, deadline=None)
def test_no_spelling_of_a_reader_gets_through(tmp_path_factory, before, between):
    file = tmp_path_factory.getbasetemp() / "secret.csv"
    file.write_text("hidden\n41\n")
    for query in (
        f"SELECT {before} * FROM read_csv{between}('{file}')",
        f"SELECT * FROM {before} read_csv('{file}')",
    ):
        try:
            rows = select(FRAMES, query)
        except BadInputError:
            continue
        assert "hidden" not in rows.columns


def test_a_text_that_looks_like_a_reader_is_a_text():
    assert select(FRAMES, "SELECT a FROM t WHERE b = 'read_csv('").to_dict(as_series=False) == {"a": [3]}


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t",
        "CREATE TABLE x AS SELECT * FROM t",
        "COPY t TO 'x'",
        "SET x = 1",
        "",
        "/* */ delete from t",
    ],
)
def test_only_queries_are_run(query):
    with pytest.raises(BadInputError, match="not a query"):
        select(FRAMES, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "+".join(["a"] * 10_000) + " FROM t",
        "SELECT " + "+".join(["a"] * 900) + " AS x FROM t",
        "SELECT " + "(" * 900 + "1" + ")" * 900 + " FROM t",
        " UNION ALL ".join(["SELECT * FROM t"] * 400),
        "SELECT * FROM " + "(SELECT * FROM " * 300 + "t" + ")" * 300,
        "SELECT " + "x" * 200_000 + " FROM t",
    ],
)
def test_long_queries_crash_nothing(query):
    try:
        select(FRAMES, query)
    except BadInputError as error:
        assert "\n" not in str(error)


def test_a_product_of_tables_ends_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(sql_child, "SECONDS", 300)
    with pytest.raises(BadInputError, match="memory"):
        select(MANY, "SELECT x.a FROM t x CROSS JOIN t y CROSS JOIN t z")


def test_a_query_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(sql_child, "SECONDS", 2)
    with pytest.raises(BadInputError, match="cannot be run"):
        select(FRAMES, "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT * FROM r")


def test_a_child_gives_the_same_rows():
    joined = select(FRAMES, "SELECT x.a, y.b FROM t x JOIN t y ON x.a = y.a ORDER BY x.a")
    assert joined.to_dict(as_series=False) == {"a": [1, 2, 3], "b": ["x", "y", "read_csv("]}
    with pytest.raises(BadInputError, match=r"no column.* 'c'"):
        select(FRAMES, "SELECT x.c FROM t x JOIN t y ON x.a = y.a")
