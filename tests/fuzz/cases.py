"""A case is a JSON value: an input of one kind, its damage, and the commands that read it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import databases, files, packs, soundings
from tests.fuzz.arguments import BASE, LIMITS, OUT, TOOL, S, command_lines
from tests.fuzz.bases import BUDGETS, NAMES, base, copied, made_files

Case = dict[str, Any]
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
    ["plan", "check", S],
    ["plan", "train", S, "--gpus", "64", "--explain"],
]
MODEL, LOAD = f"{S}/config.json", ["--requests", "20", "--rate", "2"]
PLANS = {  # commands by the file that they read
    "config.json": [
        ["plan", "train", MODEL, "--batch", "64"],
        ["plan", "train", MODEL, "--batch", "64", "--gpus", "64", "--json"],
        ["plan", "serve", MODEL, *LOAD],
        ["plan", "serve", MODEL, *LOAD, "--launch", "--explain"],
        ["plan", "reliability", MODEL, "--gpus", "64", "--days", "9"],
        ["plan", "buy", MODEL, "h100", "b200"],
        ["plan", "shapes", MODEL],
    ],
    "machine.json": [
        ["plan", "train", "llama3-8b", "--on", f"{S}/machine.json", "--batch", "64"],
        ["plan", "serve", "llama3-8b", "--on", f"{S}/machine.json", *LOAD],
        ["plan", "buy", "llama3-8b", "h100", f"{S}/machine.json"],
        ["plan", "shapes", "llama3-8b", "--on", f"{S}/machine.json"],
    ],
    "results.json": [["plan", "serve", "llama3-8b", *LOAD, "--measured", f"{S}/results.json"]],
    "arrivals.jsonl": [["plan", "serve", "llama3-8b", "--trace", f"{S}/arrivals.jsonl"]],
    "arrivals.csv": [["plan", "serve", "llama3-8b", "--trace", f"{S}/arrivals.csv", "--json"]],
    "knobs.toml": [["tune", "program", "--explain", "--adapter", f"{S}/knobs.toml"]],
    "pod.yaml": [
        ["machine", "check", "--manifest", f"{S}/pod.yaml"],
        ["machine", "check", "--manifest", f"{S}/pod.yaml", "--json"],
        ["machine", "check", "--manifest", f"{S}/pod.yaml", "--fix-script"],
    ],
}


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


def _plans() -> st.SearchStrategy[Case]:
    """Damaged files that plans, tuning and checks of pods read."""
    documents = ("config.json", "machine.json", "results.json", "arrivals.jsonl")

    def case(name: str) -> st.SearchStrategy[Case]:
        values = [files.values_in(name)] * 3 if name in documents else []
        if name.endswith(".csv"):
            values = [files.cells_of(name)]
        return _case("plan", st.one_of(files.bytes_of(name), *values), st.sampled_from(PLANS[name]))

    return st.sampled_from([*PLANS, "config.json", "machine.json"]).flatmap(case)


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
    spans = ("vllm.jsonl", "sglang.jsonl")
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
        _case(
            "otel", files.values_in(*spans) | files.bytes_of(*spans), st.sampled_from(spans).flatmap(_imports)
        ),
        _case("chrome", files.values_in("trace.json") | files.bytes_of("trace.json"), _imports("trace.json")),
        _case("budgets", files.bytes_of("fathom.toml"), st.just(gate), base=st.just("made")),
        _plans(),
        _case("machine", files.values_in("machine.json") | files.bytes_of("machine.json"), machine),
        st.fixed_dictionaries(
            {
                "kind": st.just("arguments"),
                "damage": st.just([]),
                "base": bases,
                "commands": st.lists(command_lines(), min_size=1, max_size=2),
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
    roots = {TOOL: [str(folder)]}
    return [[_filled(word, paths) for word in words] + roots.get(words[0], []) for words in case["commands"]]


def _filled(word: str, paths: dict[str, str]) -> str:
    for name, path in paths.items():
        if word.startswith(name):
            return path + word.removeprefix(name)
    return word
