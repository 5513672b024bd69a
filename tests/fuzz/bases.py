"""Inputs that the fuzzer damages: two soundings, and files that can be imported or compared."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
import polars as pl

from fathom.sounding import TABLES, Store, Writer, open_store
from tests.support.kineto_samples import small, write
from tests.support.nsys_exports import export_2021, export_2024
from tests.support.paths import DATA, ROOT
from tests.support.rocprof_results import database, document
from tests.support.small_sounding import MS, START, make

RECORDED = ROOT / "examples/soundings/train_gpt-counters-h200.fathom.zip"
BUDGETS = """[budgets]
step = "+2 %"
mfu = ">= 40 %"
peak_memory = "<= 70 GiB"
[budgets.ledger]
compute = "+1 %"
"idle: *" = "<= 1 % of step"
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "sliding_window": None,
    "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 8192, "rope_theta": 5e5,
}  # fmt: skip
POINTS = [{"prompt": 512, "output": 64, "concurrency": c, "ttft_ms": 9.0 * c, "tpot_ms": 9.0} for c in (1, 4)]
KNOBS = """[[knob]]
id = "batch"
argument = "--batch"
values = [16, 32]
work = [2, 4]
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    image: train:1
    resources: {limits: {nvidia.com/gpu: 8, memory: 64Gi, cpu: "16"}}
    volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes:
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 8Gi}
"""
BURSTS = (0, 1, 3, 9, 12, 63)
NAMES = ("made", "recorded")


@cache
def base(name: str) -> Path:
    """Return the folder of a sounding that the fuzzer copies and damages."""
    folder = Path(mkdtemp(prefix="fathom-fuzz-")) / "s.fathom"
    return make(folder).path if name == "made" else _cut(open_store(RECORDED), folder)


def copied(name: str, folder: Path) -> Path:
    """Return a new copy of the sounding `name` in `folder`, without checksums, so that any change is read."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base(name), folder)
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"checksums": {}}))
    return folder


def made_files(kind: str, folder: Path) -> None:
    """Write undamaged files of a kind: traces, exports of profilers, raw records, machine files, budgets."""
    folder.mkdir()
    if kind == "trace":
        for rank in (0, 1):
            write(folder / f"rank{rank}.json", small(), {"distributedInfo": {"rank": rank, "world_size": 2}})
    elif kind == "ncu":
        for file in (DATA / "ncu").glob("*.csv"):
            shutil.copy(file, folder)
    elif kind == "nsys":
        export_2021(folder / "2021.sqlite", steps=2)
        export_2024(folder / "2024.sqlite", steps=2)
    elif kind == "rocprof":
        database(folder / "results.db")
        document(folder / "results.json")
    elif kind == "otel":
        for file in (DATA / "serving" / "otel").glob("*.jsonl"):
            shutil.copy(file, folder)
    elif kind == "chrome":
        (folder / "trace.json").write_text(json.dumps(_begins_and_ends()))
    elif kind == "budgets":
        shutil.copytree(base("made"), folder / "a.fathom")
        (folder / "fathom.toml").write_text(BUDGETS)
    elif kind == "machine":
        shutil.copytree(base("made"), folder / "made.fathom")
        for name in ("machine.json", "other.json"):
            shutil.copy(base("recorded") / "machine.json", folder / name)
    elif kind == "plan":
        _plans(folder)
    else:
        _raw(folder / "raw")


def _plans(folder: Path) -> None:
    """Write what plans, tuning and checks read: a model, a machine, loads, results, knobs and a pod."""
    shutil.copy(base("recorded") / "machine.json", folder)
    arrivals = "".join(f"{k / 4},{100 + k},{9 + k}\n" for k in range(9))
    (folder / "arrivals.jsonl").write_text('{"arrival": 0, "prompt": 9, "output": 3}\n' * 4)
    for name, content in {"config": CONFIG, "results": {"fill_in": POINTS}}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    for name, text in {"arrivals.csv": arrivals, "knobs.toml": KNOBS, "pod.yaml": POD}.items():
        (folder / name).write_text(text)


def _begins_and_ends() -> list[dict[str, Any]]:
    """Return steps with two calls each and a kernel on a GPU's lane, in Chrome's format."""
    host, gpu = {"pid": 1, "tid": "main"}, {"pid": 2, "tid": 13}
    lanes = {"process_name": "/device:GPU:0", "thread_name": "Stream #13(Compute)"}
    events: list[dict[str, Any]] = [
        {"ph": "M", **gpu, "name": name, "args": {"name": lane}} for name, lane in lanes.items()
    ]
    for k in range(4):
        at = 100 * k
        marks = (("B", 0, f"step {k}"), ("B", 10, "call"), ("B", 12, "launch"), ("E", 15, ""), ("E", 40, ""))
        events += [{"ph": ph, **host, "ts": at + ts, "name": name} for ph, ts, name in marks]
        events += [{"ph": "E", **host, "ts": at + 90}]
        events += [
            {"ph": "X", **gpu, "ts": at + 20, "dur": 50, "name": "fusion", "args": {"correlation_id": k}}
        ]
    return events


def _raw(folder: Path) -> None:
    """Write raw records of one process with a traced burst, as the probe does."""
    folder.mkdir()
    about = {
        "source": "optimizer",
        "thread": 1,
        "kind": "train",
        "samples": 4,
        "tokens": None,
        "stream": None,
    }
    marks = [
        {
            "t": "marks",
            "k": k,
            "ns": [START + 10 * MS * n for n in range(k, k + 4)],
            "phase": phase,
            "burst": k // 4,
        }
        for k, phase in ((0, "settle"), (4, "timeline"), (8, "clean"), (12, "clean"))
    ]
    trace = {
        "t": "trace",
        "phase": "timeline",
        "burst": 1,
        "file": "trace-7-1.json",
        "stop_ns": START + 90 * MS,
    }
    records = [
        {
            "t": "process",
            "pid": 7,
            "rank": 0,
            "role": "rank",
            "python": "3.12.1",
            "versions": {"torch": "2.9"},
        },
        {"t": "clock", "source": "optimizer", "k": 0, "ns": START},
        *(mark | about for mark in marks),
        trace | {"k0": 4, "k1": 8},
        *_others(),
        {"t": "end", "steps": 16, "reason": "exit"},
    ]
    machine = json.loads((base("recorded") / "machine.json").read_text())
    launch = {"name": "s", "command": ["python", "train.py"], "start_ns": START, "machine": machine}
    lines = {"proc-7": records, "stacks-7": _stacks(), "telemetry": [{"time_ns": START, "device": 0}]}
    for name, rows in lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    about = {"standard": ["/usr/lib/python3"], "fathom": "/fathom/probe"}
    ended = {"ended": "finished", "exit_status": 0, "abstained": [{"what": "counters", "why": "no GPU"}]}
    for name, content in {"launch": launch, "end": ended, "frames-7": about, "iterators-7": {}}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    write(folder / "trace-7-1.json", small())


def _others() -> list[dict[str, Any]]:
    """Return records of the kinds that are not about steps."""
    at = START + 85 * MS
    stretch = {"thread": 1, "start": at, "end": at + MS}
    columns = [
        "loader",
        "batch",
        "worker",
        "pid",
        "epoch",
        "nth",
        "thread",
        "start",
        "wait",
        "fetch",
        "collate",
    ]
    rows = [[0, k, None, None, 0, k, 1, at + k * 10 * MS, MS, MS // 2, 9] for k in range(3)]
    return [
        {"t": "micro", "k": 9, "ns": at + 8 * MS, "source": "loader", "thread": 1},
        {"t": "device", "burst": 2, "marks": [[8, 0], [9, 10 * MS], [10, 20 * MS]]},
        {"t": "rehearsal", "burst": 9},
        {"t": "resettled", "k": 2},
        {"t": "wait", "cause": "item", "detail": "x", **stretch},
        {"t": "region", "name": "part", **stretch},
        {"t": "memory", "ns": at, "device": 0, "allocated": 1, "reserved": 2, "peak_allocated": 3},
        {"t": "snapshot", "device": 0, "events": [[at, "alloc", 512], [at + 9, "free_completed", 512]]},
        {"t": "batches", "columns": columns, "rows": rows},
        {
            "t": "dynamo",
            "frames": 3,
            "graphs": 2,
            "reasons": [["a call", 1]],
            "breaks": [{"file": "a.py", "line": 1}],
        },
        {"t": "loader", "loader": 0, "dataset": "Samples", "workers": 0, "batch_size": 4},
        {
            "t": "samples",
            "burst": 3,
            "device": 0,
            "k0": 12,
            "k1": 14,
            "names": ["a"],
            "completed": 2,
            "file": "x.bin",
        },
        {"t": "note", "what": "memory", "text": "not recorded"},
    ]


def _stacks() -> list[dict[str, Any]]:
    """Return samples of two stacks, as the parent of a recorded program writes them."""
    at = START + 85 * MS
    return [
        {"t": "frames", "rows": [["main", "/x/train.py", 3], ["step", "/x/train.py", 9]]},
        {"t": "stacks", "rows": [[0], [0, 1]]},
        {"t": "samples", "thread": 1, "rows": [[at + k * MS, True, None, k % 2] for k in range(9)]},
        {"t": "stretch", "start_ns": at, "end_ns": at + 9 * MS, "samples": 9, "dropped": 0},
    ]


def _cut(store: Store, folder: Path) -> Path:
    """Write the first bursts of a recording, which hold at least one of each phase."""
    writer = Writer(folder)
    end = max(phase.end_ns for phase in store.manifest.phases if phase.burst in BURSTS)
    for table, columns in TABLES.items():
        frame = store.table(table, 0).collect()
        if "burst" in columns:
            frame = frame.filter(pl.col("burst").is_in(BURSTS))
        elif "time_ns" in columns:
            frame = frame.filter(pl.col("time_ns") < end)
        writer.write(0, table, frame.drop("rank"))
    manifest = msgspec.structs.replace(
        store.manifest, phases=[phase for phase in store.manifest.phases if phase.burst in BURSTS]
    )
    return writer.finish(manifest, store.machine).path
