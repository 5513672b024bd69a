"""Command lines as data: every option of the commands that read, SQL, and calls of the tools for agents."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.values import FLOATS, INTEGERS, TEXTS

S, BASE, OUT, LIMITS = "SOUNDING", "BASE", "OUT", "LIMITS"  # words of commands that stand for paths
TOOL = "tool"  # first word of a call of a tool for agents: its name, arguments as JSON, and a root

ODD = st.sampled_from(
    [*map(str, INTEGERS), *map(str, FLOATS), *(text for text in TEXTS if "\0" not in text), "-5", "1" * 5000]
)
# Commands with their arguments, which start no program and serve nothing.
BEGINNINGS = (
    ["report", S],
    ["findings", S],
    ["kernel", S, "gemm"],
    ["what-if", S, "input=0"],
    ["tips", S],
    ["tips"],
    ["query", S, "select * from kernels"],
    ["merge", S, S, "-o", OUT],
    ["import", S],
    ["dive", S, "gemm"],
    ["compare", BASE, S],
    ["gate", S, "--budgets", LIMITS, "--baseline", BASE],
    ["export", S, OUT],
    ["pack", S, "-o", OUT + ".zip"],
    ["goodput", S],
    ["watch", S, "--once"],
    ["open", S, "--to", OUT + ".html"],
    ["explain"],
    ["prove", S, BASE],
    ["lab", "list"],
    ["lab", "show"],
    ["machine", "check"],
    ["machine", "compare", S, S],
    ["plan", "train", "llama3-8b", "--batch", "64"],
    ["plan", "train", S],
    ["plan", "serve", "llama3-8b", "--requests", "20"],
    ["plan", "reliability", "llama3-70b", "--gpus", "256", "--days", "5"],
    ["plan", "buy", "llama3-8b", "h100", "b200"],
    ["plan", "shapes", "llama3-8b"],
    ["plan", "check", S],
    ["plan", "models"],
    ["plan", "systems"],
    ["tune", "program", "--explain"],
    ["tune", "program"],  # without a program to start
    ["tune", "kernel", f"{S}/x.py:x", S],
)
GROUPS = ("lab", "machine", "plan", "tune")
RUNS = {"--yes", "--serve", "--on"}  # options that start or serve something
WORTH = ("all-kernels", "input", "launch", "family:gemm", "family:(a+)+$", "op:*", "entry:", "sync", "x")
AMOUNTS = ("0", "0.5", "1e308", "-1", "nan", "inf", "4us", "9" * 400, "", "1e999s")
PLANNED = st.sampled_from(  # values that options of plans may have
    ["8", "7", "4096", "1000000", "100000", "1e12", "0.5", "h100", "b200", "mi300x", "fp8", "1ms", "50ms",
     "2.5/h", "80 GB", "hbm=4 TB/s", "hbm=0 TB/s", "link=1e-9 GB/s", "fsdp", "full", "dollars", "energy",
     "rsc-1", "sync", "bursty", "vllm", "bf16"]
)  # fmt: skip
CHANGE = st.builds("{}={}".format, st.sampled_from(WORTH), st.sampled_from(AMOUNTS))
PATTERN = st.sampled_from(
    ["gemm", "*", "(a+)+$", "(.*)*x", "[", "\x1b[2J", "a" * 5000, "", "(?i)g", r"(\w+\s?)+$"]
)
QUERIES = (
    "select * from kernels",
    "select count(*) from steps",
    "select name, sum(end_ns - start_ns) as t from kernels group by name order by t desc limit 5",
    "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
    "select * from read_csv('/etc/passwd')",
    "select " + "+".join(["1"] * 900) + " from steps",
    "select " + "+".join(["1"] * 3000),
    "select " + "(" * 500 + "1" + ")" * 500 + " from steps",
    "select repeat(name, 1000000000) from kernels",
    "select \x1b[2J from steps",
    "create table x as select * from steps",
    "drop table steps",
    ";",
    "select name from kernels where name ~ '(a+)+$'",
    "select cast(start_ns as varchar) from kernels",
    "select max(start_ns) * max(end_ns) from kernels",
    "explain select * from steps",
    "show tables",
)
TABLES = ("kernels", "steps", "ledger", "launches", "kernels, steps", "kernels join steps using (step)", "x")
ITEMS = (
    *("*", "name", "start_ns", "count(*)", "step + 1", "start_ns * end_ns", "-start_ns", "x", "kernels.*"),
    *("substr(name, -9223372036854775808)", "left(name, -1)", "quantile_cont(start_ns, 2)", "ln(-1)"),
    *("cast(name as int)", "cast(start_ns as date)", "row_number() over (order by start_ns)", "1 / 0"),
    *("name || repeat(name, 9)", "regexp_like(name, '(')", "strptime(name, '%Y')", "count(distinct name)"),
    *("case when name then 1 end", "name::timestamp", "interval '1 day'", "array[1, 'a']", "1e999", "0x1g"),
    *("lag(start_ns, -1) over ()", "(select 1)", "null", "'", '"', "%", "unnest(name)", "lpad(name, 999999)"),
)
ENDINGS = (
    *("", "where name", "where start_ns > 'x'", "where name like '%' escape ''", "where 1 = 1 or 1 / 0 = 1"),
    *("limit -1", "limit 99999999999999999999", "limit 1 offset -1", "order by 99", "order by x"),
    *("group by 1", "group by all", "having 1", "group by name having count(*) > 'x'", "union select 1"),
    *("union all select * from kernels", "except select * from steps", "where name in (select name)", ";;"),
    *("where exists (select * from kernels)", "limit 1 limit 1", "for update", "; drop table steps", "-- x"),
)


def command_lines() -> st.SearchStrategy[list[str]]:
    """Lines with odd options, patterns, changes, queries and arguments."""
    return st.one_of(
        _with_options(),
        _with_options(),
        PATTERN.map(lambda text: ["kernel", S, "--", text]),
        PATTERN.map(lambda text: ["dive", S, text]),
        st.lists(CHANGE, min_size=1, max_size=3).map(lambda changes: ["what-if", S, *changes]),
        _sql().map(lambda query: ["query", S, query]),
        _tools(),
        _plans(),
        st.tuples(st.sampled_from(["explain", "report", "import", "goodput", "watch"]), ODD).map(
            lambda drawn: [drawn[0], *(["--once"] if drawn[0] == "watch" else []), "--", drawn[1]]
        ),
        st.tuples(st.sampled_from(["train", "serve", "shapes", "check", "buy"]), ODD).map(
            lambda drawn: ["plan", drawn[0], "--", drawn[1], *(["h100", "b200"] if drawn[0] == "buy" else [])]
        ),
        ODD.map(lambda text: ["compare", "--", S, text]),
        ODD.map(lambda text: ["lab", "list", "--", text]),
        ODD.map(lambda text: ["export", S, OUT + text[:50].replace("/", "")]),
    )


def _plans() -> st.SearchStrategy[list[str]]:
    """Plans with two odd options, some of them of a size that a plan may have."""
    plans = [words for words in BEGINNINGS if words[0] == "plan" and _options(*_name(words))]
    values = st.one_of(ODD, PLANNED, PLANNED)

    def line(words: list[str]) -> st.SearchStrategy[list[str]]:
        options = st.tuples(st.sampled_from(_options(*_name(words))), values)
        more = st.lists(options, min_size=2, max_size=2)
        return more.map(lambda drawn: [*words, *(word for o, value in drawn for word in _line([], o, value))])

    return st.sampled_from(plans).flatmap(line)


def _sql() -> st.SearchStrategy[str]:
    items = st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3).map(", ".join)
    made = st.builds("select {} from {} {}".format, items, st.sampled_from(TABLES), st.sampled_from(ENDINGS))
    return st.one_of(st.sampled_from(QUERIES), made, made)


def _with_options() -> st.SearchStrategy[list[str]]:
    lines = [(words, option) for words in BEGINNINGS for option in _options(*_name(words))]
    values = st.one_of(ODD, ODD, st.sampled_from([S, BASE, OUT, "0", "1", "3.50/h", "json"]))
    flags = st.lists(st.tuples(st.sampled_from(lines), values), min_size=1, max_size=1)
    return flags.map(lambda drawn: _line(*drawn[0][0], drawn[0][1]))


def _line(words: list[str], option: tuple[str, bool], value: str) -> list[str]:
    name, is_flag = option
    if is_flag:
        return [*words, name]
    return [*words, name, value] if value in (S, BASE, OUT) else [*words, f"{name}={value}"]


def _name(words: list[str]) -> list[str]:
    return words[: 2 if words[0] in GROUPS else 1]


@cache
def _options(*path: str) -> list[tuple[str, bool]]:
    """Return (name, whether it is a flag) of each option of a command."""
    import typer

    from fathom.cli.main import app

    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    named = [(parameter.opts[0], parameter.is_flag) for parameter in command.params
             if parameter.opts[0].startswith("-")]  # fmt: skip
    return [option for option in named if option[0] not in RUNS or path[0] == "plan"]


def _tools() -> st.SearchStrategy[list[str]]:
    odd = st.one_of(
        ODD, st.sampled_from([None, True, [], {}, *INTEGERS, *FLOATS[:5], 10**30]), st.lists(ODD, max_size=2)
    )
    names = st.sampled_from(["s.fathom", "s.fathom", "../x", "limits.toml", "."]) | ODD
    given = {
        "report": {"kind": odd, "price": odd},
        "findings": {"id": odd, "headroom": odd, "price": odd},
        "account": {"kind": odd},
        "kernel": {"pattern": PATTERN, "rank": odd},
        "query": {"sql": _sql()},
        "what_if": {"changes": st.lists(CHANGE, max_size=2), "rank": odd},
    }
    reading = [
        st.tuples(st.just(tool), st.fixed_dictionaries({"sounding": names}, optional=arguments))
        for tool, arguments in given.items()
    ]
    sides = st.lists(names, max_size=2)
    other = [
        st.tuples(st.just("compare"), st.fixed_dictionaries({"baseline": sides, "candidate": sides})),
        st.tuples(st.sampled_from(["explain", "lab_show", "machine", "more", "x"]),
                  st.dictionaries(st.sampled_from(["kind", "name", "show", "handle"]), odd, max_size=1)),
    ]  # fmt: skip
    return st.one_of(*reading, *other).map(lambda drawn: [TOOL, drawn[0], json.dumps(drawn[1])])
