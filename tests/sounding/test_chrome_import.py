"""Traces in Chrome's format: a real one of JAX, one with a GPU's lanes as in XProf, and plain ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fathom.errors import BadInputError
from fathom.recorder import import_any
from fathom.sounding import Store, import_traces
from tests.support.paths import DATA

JAX = DATA / "jax-cpu.trace.json.gz"  # of jax 0.10.2: five annotated steps of a jitted function


def write(path: Path, events: list[dict[str, Any]], bare: bool = False) -> Path:
    path.write_text(json.dumps(events if bare else {"traceEvents": events}))
    return path


def imported(path: Path, **options: Any) -> Store:
    return import_traces([path], path.parent / f"{path.stem}.fathom", **options)


def test_a_real_trace_of_jax(tmp_path):
    events = json.loads(gzip.decompress(JAX.read_bytes()))["traceEvents"]
    store = import_traces([JAX], tmp_path / "j.fathom")
    marks = [event for event in events if "step_num" in event.get("args", {})]
    steps = store.table("steps").collect()
    assert steps["step"].to_list() == [0, 1, 2, 3, 4] == [int(event["args"]["step_num"]) for event in marks]
    assert steps["mark_ns"].to_list() == [round(event["ts"] * 1000) for event in marks]
    ops = store.table("ops").collect()
    xla = Counter(event["name"] for event in events if "hlo_op" in event.get("args", {}))
    assert Counter(ops.filter(kind="op")["name"]) == xla and xla.total() > 20
    assert set(ops.filter(kind="op")["thread"]) == set(steps["thread"])
    assert "fwd" in set(ops.filter(kind="annotation")["name"]) and store.manifest.problems == []


def test_a_log_folder_of_jax_is_its_last_run(tmp_path):
    for run, size in (("2026_01_01", 3), ("2026_01_02", 2)):
        folder = tmp_path / "log" / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        (folder / "h.xplane.pb").write_bytes(b"")
        events = [{"ph": "X", "pid": 1, "tid": 1, "ts": k, "dur": 1, "name": "op"} for k in range(size)]
        (folder / "h.trace.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
    store = import_any([tmp_path / "log"], tmp_path / "log.fathom")
    assert store.table("ops").select(pl.len()).collect().item() == 2


def lane(pid: int, name: str, tid: int, thread: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread}},
    ]


def interval(pid: int, tid: int, ts: float, dur: float, name: str, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}


def on_gpu() -> list[dict[str, Any]]:
    launch = "regs:32 static_shared:0 dynamic_shared:16 grid:8,2,1 block:256,1,1 occ_pct:100"
    copy = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
    return [
        *lane(1, "/device:GPU:3", 13, "Stream #13(Compute)"),
        *lane(1, "/device:GPU:3", 14, "Stream #14(MemcpyH2D)"),
        *lane(1, "/device:GPU:3", 99, "XLA Modules"),
        *lane(701, "/host:CPU", 1, "python"),
        *(interval(701, 1, 100 * k, 90, "train", step_num=str(k)) for k in range(3)),
        interval(701, 1, 10, 2, "cuLaunchKernel", correlation_id="5"),
        interval(1, 13, 15, 40, "fusion", correlation_id="5", kernel_details=launch),
        interval(1, 14, 12, 4, "MemcpyH2D", memcpy_details=copy),
        interval(1, 99, 12, 60, "jit_f"),
    ]


def test_lanes_of_a_gpu_are_its_streams(tmp_path):
    store = imported(write(tmp_path / "g.json", on_gpu()))
    copy, kernel = store.table("kernels").collect().sort("start_ns").iter_rows(named=True)
    assert (kernel["device"], kernel["stream"], kernel["grid"], kernel["block"]) == (
        3,
        13,
        "8x2x1",
        "256x1x1",
    )
    assert (kernel["name"], kernel["registers"], kernel["correlation"]) == ("fusion", 32, 5)
    assert (copy["kind"], copy["direction"], copy["bytes"], copy["stream"]) == (
        "copy",
        "HtoD pinned",
        4096,
        14,
    )
    assert store.table("launches").collect().select("api", "correlation").rows() == [("cuLaunchKernel", 5)]
    assert store.table("steps").collect()["step"].to_list() == [0, 1, 2]
    assert store.table("ops").collect().is_empty()


def test_begin_and_end_events_are_paired_innermost_first(tmp_path):
    events = [
        {"ph": "B", "pid": "a", "tid": "main", "ts": 0, "name": "outer"},
        {"ph": "B", "pid": "a", "tid": "main", "ts": 10, "name": "inner"},
        {"ph": "E", "pid": "a", "tid": "main", "ts": 15},
        {"ph": "B", "pid": "a", "tid": "other", "ts": 12, "name": "elsewhere"},
        {"ph": "E", "pid": "a", "tid": "main", "ts": 30},
        {"ph": "E", "pid": "a", "tid": "main", "ts": 40},
    ]
    store = imported(write(tmp_path / "b.json", events, bare=True))
    ops = store.table("ops").collect()
    assert ops.select("name", "start_ns", "end_ns").rows() == [
        ("outer", 0, 30_000),
        ("inner", 10_000, 15_000),
    ]
    assert ops["parent"].to_list() == [None, ops["id"][0]]
    (problem,) = store.manifest.problems
    assert (problem.what, problem.count) == ("unmatched", 2)


@pytest.mark.parametrize("name", ["step", "iteration {k}", "train_step", "eval/step={k}", "Step 3/{k}"])
def test_ranges_named_like_steps_are_steps(tmp_path, name):
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 100 * k, "dur": 80, "name": name.format(k=k)} for k in range(4)
    ]
    events += [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 100 * k + 5, "dur": 20, "name": "stepwise"} for k in range(4)
    ]
    store = imported(write(tmp_path / "s.json", events))
    steps = store.table("steps").collect()
    assert steps["mark_ns"].to_list() == [0, 100_000, 200_000, 300_000] and steps["end_ns"][-1] == 380_000
    assert store.table("ops").collect()["name"].unique().to_list() == ["stepwise"]


def test_times_since_the_epoch_are_exact(tmp_path):
    path = tmp_path / "e.json"
    path.write_text('[{"ph":"X","pid":1,"tid":1,"ts":1700000000123456.789,"dur":1.001,"name":"op"}]')
    (row,) = imported(path).table("ops").select("start_ns", "end_ns").collect().rows()
    assert row == (1_700_000_000_123_456_789, 1_700_000_000_123_457_790)


def test_damaged_intervals_are_counted(tmp_path):
    good = {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "name": "op"}
    events = [good, {**good, "dur": -4}, {**good, "ts": None}, {**good, "ts": -1e30}, {**good, "name": None}]
    store = imported(write(tmp_path / "d.json", events))
    assert {p.what: p.count for p in store.manifest.problems} == {
        "bad-duration": 1,
        "bad-time": 2,
        "no-name": 1,
    }
    assert store.table("ops").select(pl.len()).collect().item() == 1


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}]]
)
def test_a_trace_without_intervals_is_refused(tmp_path, events):
    with pytest.raises(BadInputError, match="neither operators nor device work"):
        imported(write(tmp_path / "n.json", events))


def test_xplane_files_are_refused_with_the_file_to_take(tmp_path):
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(b"\x0a\x20\x08\x01\x12")
    with pytest.raises(BadInputError, match=r"import the \.trace\.json\.gz beside it"):
        imported(path)
