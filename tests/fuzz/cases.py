"""A case is a JSON value: an input of one kind, its damage, and the commands that read it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import databases, files, packs, soundings
from tests.fuzz.bases import BUDGETS, NAMES, base, copied, made_files
from tests.fuzz.values import FLOATS, INTEGERS, TEXTS

Case = dict[str, Any]
S, BASE, OUT, LIMITS = "SOUNDING", "BASE", "OUT", "LIMITS"  # words of commands that stand for paths

_odd = st.sampled_from(
    [*map(str, INTEGERS), *map(str, FLOATS), *(text for text in TEXTS if "\0" not in text), "-5", "1" * 5000]
)
_pattern = st.sampled_from(
    ["gemm", "*", "(a+)+$", "(.*)*x", "[", "\x1b[2J", "a" * 5000, "", "(?i)g", r"(\w+\s?)+$"]
)
_change = st.builds(
    "{}={}".format,
    st.sampled_from(
        ["all-kernels", "input", "launch", "family:gemm", "family:(a+)+$", "op:*", "entry:", "sync", "x"]
    ),
    st.sampled_from(["0", "0.5", "1e308", "-1", "nan", "inf", "4us", "9" * 400, "", "1e999s"]),
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
READ = [
    ["report", S],
    ["report", S, "--json"],
    ["report", S, "--html", OUT + ".html"],
    ["report", S, "--svg", OUT + ".svg"],
    ["report", S, "--roofline", "--profiled", "--all"],
    ["findings", S],
    ["findings", S, "--leads"],
    ["kernel", S],
    ["kernel", S, "gemm"],
    ["kernel", S, "*", "--all", "--counters", "--json"],
    ["what-if", S, "all-kernels=0.5", "input=0"],
    ["what-if", S, "entry:idle: python=0", "launch=4us", "--json"],
    ["tips", S],
    ["query", S, "select * from kernels"],
    ["pack", S, "-o", OUT + ".zip"],
    ["pack", S, "--folded", "-o", OUT + ".zip"],
    ["merge", S, S, "-o", OUT],
    ["import", S],
    ["machine", "compare", S, S],
    ["dive", S, "gemm"],
    ["compare", BASE, S],
    ["compare", S, BASE, "--all"],
    ["compare", BASE, S, "--json"],
    ["compare", BASE, S, "--html", OUT + ".html"],
    ["gate", S, "--budgets", LIMITS, "--baseline", BASE],
    ["gate", S, "--budgets", LIMITS, "--baseline", BASE, "--markdown", OUT + ".md", "--junit", OUT + ".xml"],
    ["export", S, OUT + ".pftrace", "--to", "perfetto"],
    ["export", S, OUT, "--to", "parquet"],
    ["export", S, OUT, "--to", "csv"],
    ["export", S, OUT + ".json", "--to", "otel"],
]


def _with_arguments() -> st.SearchStrategy[list[str]]:
    option = st.one_of(
        st.tuples(st.sampled_from([["report", S], ["findings", S], ["tips", S]]), st.just("--price"), _odd),
        st.tuples(
            st.sampled_from([["report", S], ["kernel", S], ["what-if", S, "input=0"]]),
            st.just("--rank"),
            _odd,
        ),
        st.tuples(st.just(["report", S]), st.sampled_from(["--kind", "--machine", "--html", "--svg"]), _odd),
        st.tuples(
            st.just(["query", S, "select * from kernels"]), st.sampled_from(["--limit", "--format"]), _odd
        ),
        st.tuples(st.just(["merge", S, S, "-o", OUT]), st.just("--ranks"), _odd),
        st.tuples(st.just(["dive", S, "gemm"]), st.sampled_from(["--launch", "--set"]), _odd),
        st.tuples(st.just(["tips", S]), st.sampled_from(["--area", "--status", "--manifest"]), _odd),
        st.tuples(st.just(["compare", BASE, S]), st.sampled_from(["--margin", "--rank", "--kind"]), _odd),
        st.tuples(st.just(["export", S, OUT]), st.just("--to"), _odd),
        st.tuples(st.just(["machine", "check"]), st.sampled_from(["--only", "--manifest"]), _odd),
    ).map(lambda drawn: [*drawn[0], f"{drawn[1]}={drawn[2]}"])
    return st.one_of(
        option,
        _pattern.map(lambda text: ["kernel", S, "--", text]),
        _pattern.map(lambda text: ["dive", S, text]),
        st.lists(_change, min_size=1, max_size=3).map(lambda changes: ["what-if", S, *changes]),
        st.sampled_from(QUERIES).map(lambda query: ["query", S, query]),
        _odd.map(lambda text: ["explain", "--", text]),
        _odd.map(lambda text: ["report", "--", text]),
        _odd.map(lambda text: ["import", "--", text]),
        _odd.map(lambda text: ["compare", "--", S, text]),
        _odd.map(lambda text: ["lab", "list", "--", text]),
    )


def _case(kind: str, damage: st.SearchStrategy[Any], commands: st.SearchStrategy[Any], **more: Any) -> Any:
    return st.fixed_dictionaries(
        {
            "kind": st.just(kind),
            "damage": st.lists(damage, min_size=1, max_size=3),
            "commands": st.lists(commands, min_size=1, max_size=2),
            **more,
        }
    )


def _imports(*names: str) -> st.SearchStrategy[list[str]]:
    return st.just(["import", *(f"{S}/{name}" for name in names), "-o", OUT])


def cases() -> st.SearchStrategy[Case]:
    """Cases of all kinds."""
    bases, reading = st.sampled_from(NAMES), st.sampled_from(READ)
    documents = files.values_in("manifest.json", "machine.json")
    of_files = files.bytes_of(
        "manifest.json", "machine.json", "rank-0/kernels.parquet", "rank-0/steps.parquet"
    )
    sounding = st.one_of(
        soundings.tables(), soundings.tables(), soundings.whole_tables(), documents, of_files
    )
    traces, csv = ("rank0.json", "rank1.json"), ("raw.csv", "summary.csv", "details.csv", "german.csv")
    other = ("raw/stacks-7.jsonl", "raw/frames-7.json", "raw/iterators-7.json", "raw/telemetry.jsonl")
    raw = (*["raw/proc-7.jsonl"] * 3, "raw/end.json", "raw/launch.json", "raw/trace-7-1.json", *other)
    nsys, rocprof = ("2021.sqlite", "2024.sqlite"), ("results.db", "results.json")
    gate = ["gate", f"{S}/a.fathom", "--budgets", f"{S}/fathom.toml", "--baseline", BASE]
    machine = st.sampled_from([["machine", "compare", f"{S}/machine.json", f"{S}/other.json"],
                               ["report", f"{S}/made.fathom", "--machine", f"{S}/machine.json"]])  # fmt: skip
    return st.one_of(
        _case("sounding", sounding, reading, base=bases),
        _case("sounding", sounding, reading, base=bases),
        _case("pack", packs.damages(), reading),
        _case(
            "trace",
            files.values_in(*traces) | files.bytes_of(*traces),
            _imports(*traces) | _imports(traces[0]),
        ),
        _case("raw", files.values_in(*raw) | files.bytes_of(*raw), st.just(["import", S])),
        _case("ncu", files.bytes_of(*csv) | files.cells_of(*csv), st.sampled_from(csv).flatmap(_imports)),
        _case(
            "nsys", databases.rows_of(*nsys) | files.bytes_of(*nsys), st.sampled_from(nsys).flatmap(_imports)
        ),
        _case(
            "rocprof",
            databases.rows_of(rocprof[0]) | files.values_in(rocprof[1]) | files.bytes_of(*rocprof),
            st.sampled_from(rocprof).flatmap(_imports),
        ),
        _case("chrome", files.values_in("trace.json") | files.bytes_of("trace.json"), _imports("trace.json")),
        _case("budgets", files.bytes_of("fathom.toml"), st.just(gate), base=st.just("made")),
        _case("machine", files.values_in("machine.json") | files.bytes_of("machine.json"), machine),
        st.fixed_dictionaries(
            {
                "kind": st.just("arguments"),
                "damage": st.just([]),
                "base": bases,
                "commands": st.lists(_with_arguments(), min_size=1, max_size=2),
            }
        ),
    )


def prepare(case: Case, folder: Path) -> list[list[str]]:
    """Write the input of a case into `folder`, and return its commands."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inputs = folder / "s.fathom"
    if case["kind"] in ("sounding", "arguments"):
        copied(case["base"], inputs)
        for damage in case["damage"]:
            soundings.apply(inputs, damage)
    elif case["kind"] == "pack":
        packs.packed(copied("made", folder / "folder"), inputs, case["damage"])
    else:
        made_files(case["kind"], inputs)
        for damage in case["damage"]:
            files.apply(inputs / damage["file"], damage)
    (limits := folder / "limits.toml").write_text(BUDGETS)
    known = str(base(case.get("base", "recorded")))
    paths = {S: str(inputs), OUT: str(folder / "out.fathom"), BASE: known, LIMITS: str(limits)}
    return [[_filled(word, paths) for word in words] for words in case["commands"]]


def _filled(word: str, paths: dict[str, str]) -> str:
    for name, path in paths.items():
        if word.startswith(name):
            return path + word.removeprefix(name)
    return word
