"""Kineto traces into tables: small ones written by hand, and real ones of five kinds of machine."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fathom.sounding import import_traces, open_store
from fathom.sounding.kineto import Trace, read_trace
from fathom.sounding.schema import TABLES
from tests.support.kineto_samples import BASE, KEPT, call, kernel, op, small, write
from tests.support.paths import TRACES

REAL = sorted(TRACES.glob("*.json.gz")) + sorted(KEPT.glob("*.json.gz"))
# The second name of each is what PyTorch 1.8 wrote.
HOST = {"cpu_op", "Operator", "user_annotation"}
DEVICE = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}
CALLS = {"cuda_runtime", "Runtime", "cuda_driver"}

shared = pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")


def truth(path: Path) -> dict[str, Any]:
    """The trace as the standard library reads it, numbers exact."""
    return json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)


@pytest.fixture(scope="module", params=REAL, ids=lambda path: path.name.split(".")[0])
def real(request) -> tuple[dict[str, Any], Trace]:
    """A real trace as the standard library reads it, and as Fathom does."""
    return truth(request.param), read_trace(request.param)


def test_a_real_trace_comes_out_whole_and_exact(real):
    document, trace = real
    base = document.get("baseTimeNanoseconds", 0)
    assert trace.problems == [] or {p.what for p in trace.problems} <= {"launch-missing", "stream-overlap"}
    for table, categories, name in (
        ("ops", HOST, "name"),
        ("launches", CALLS, "api"),
        ("kernels", DEVICE, "name"),
    ):
        expected = Counter(
            (e["name"], round(e["ts"] * 1000) + base, round((e["ts"] + e["dur"]) * 1000) + base)
            for e in document["traceEvents"]
            if e["ph"] == "X" and e.get("cat") in categories and not e["name"].startswith("fathom.mark#")
        )
        result = trace.tables[table]
        assert result.columns == list(TABLES[table])
        assert Counter(result.select(name, "start_ns", "end_ns").iter_rows()) == expected


def test_arguments_of_real_device_work(real):
    document, trace = real
    expected = Counter()
    for event in document["traceEvents"]:
        if event.get("cat") in DEVICE and event["ph"] == "X":
            args = event["args"]
            grid = "x".join(map(str, args["grid"])) if "grid" in args else None
            expected[args["device"], args["stream"], args["correlation"], args.get("bytes"), grid] += 1
    result = trace.tables["kernels"].select("device", "stream", "correlation", "bytes", "grid")
    assert Counter(result.iter_rows()) == expected


MESSAGE = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size")
GROUP = ("Process Group Name", "Process Group Description", "Process Group Ranks")


def test_arguments_of_real_ops(real):
    document, trace = real
    expected = Counter()
    for event in document["traceEvents"]:
        if event.get("cat") in HOST and not event["name"].startswith("fathom.mark#"):
            args = dict(event["args"])
            if "Collective name" in args:
                values = [str(args.get(key)) for key in MESSAGE]
                if "Process Group Name" in args:
                    values += [str(args.get(key) or "") for key in GROUP]
                args["Concrete Inputs"] = values
            expected[
                tuple(json.dumps(args.get(key)) for key in ("Input Dims", "Input type", "Concrete Inputs"))
            ] += 1
    rows = trace.tables["ops"].select("shapes", "dtypes", "values").iter_rows()
    assert Counter(tuple(json.dumps(json.loads(v)) if v else "null" for v in row) for row in rows) == expected


def test_the_innermost_op_is_the_parent(real):
    """Against every pair of events, for a sample of them."""
    ops, launches = real[1].tables["ops"], real[1].tables["launches"]
    spans = {row[0]: row[1:] for row in ops.select("id", "thread", "start_ns", "end_ns").iter_rows()}
    assert ops["id"].n_unique() == len(ops)
    sample = [*ops.select("thread", "start_ns", "parent", "id").rows()[:: max(1, len(ops) // 60)]]
    sample += [
        (*row, None)
        for row in launches.select("thread", "start_ns", "op").rows()[:: max(1, len(launches) // 60)]
    ]
    for thread, start, parent, own in sample:
        around = [
            (begin, -end, number)
            for number, (where, begin, end) in spans.items()
            if where == thread and begin <= start < end and number != own
        ]
        if parent is None:
            assert all(begin == start for begin, _, _ in around)  # only what it contains itself, or a twin
        else:
            where, begin, end = spans[parent]
            assert where == thread and begin <= start < end
            assert all(b <= begin or b == start for b, _, _ in around)


@shared
def test_directions_and_kinds():
    kernels = read_trace(TRACES / "h100-owlv2.json.gz").tables["kernels"]
    assert dict(kernels["direction"].value_counts().drop_nulls().rows()) == {
        "DtoD": 5, "DtoH pageable": 55, "HtoD pageable": 25,
    }  # fmt: skip
    assert dict(kernels["kind"].value_counts().rows()) == {"compute": 4330, "copy": 85, "set": 750}
    kernels = read_trace(TRACES / "diff-control.json.gz").tables["kernels"]
    collective = kernels.filter(pl.col("kind") == "collective")
    assert len(collective) == 60 and collective["name"].str.starts_with("nccl").all()


@shared
def test_graph_kernels_of_hip_share_the_launch():
    trace = read_trace(TRACES / "vllm-piecewise-graph.json.gz")
    graphs = trace.tables["launches"].filter(pl.col("api") == "hipGraphLaunch")
    launched = trace.tables["kernels"].join(graphs, on="correlation", how="semi")
    assert len(graphs) and len(launched) > 10 * len(graphs)
    assert trace.origin.world == 1 and trace.origin.versions["hip_runtime"] == "70051831"


@shared
def test_source_and_module_come_from_the_stack():
    ops = read_trace(TRACES / "h100-qwen-0.5b.json.gz").tables["ops"]
    projection = ops.filter(pl.col("module") == "Qwen2Attention_3", pl.col("name") == "aten::cat")
    assert projection["source"].str.starts_with("transformers/models/qwen2/modeling_qwen2.py(").any()
    linear = ops.filter(pl.col("name") == "aten::linear")
    assert linear["module"].str.starts_with("Linear_").all()
    frames = ops["source"].drop_nulls()
    assert len(frames) and not frames.str.contains(r"^torch/|^<|threading\.py").any()


@shared
def test_steps_of_the_profiler():
    trace = read_trace(TRACES / "ns-resolution-rank0.json.gz")
    assert trace.steps["step"].to_list() == [101, 102, 103, 104, 105]
    assert ((trace.steps["end_ns"] - trace.steps["mark_ns"]) / 1e6).round(0).to_list() == [35, 72, 96, 96, 96]
    assert set(trace.steps["kind"]) == {"step"} and set(trace.steps["source"]) == {"profiler"}


def test_marks_are_no_ops():
    trace = read_trace(KEPT / "graph.json.gz", phase="attribution", burst=3)
    names = [e["name"] for e in truth(KEPT / "graph.json.gz")["traceEvents"] if e.get("cat") == "cpu_op"]
    marks = [name for name in names if name.startswith("fathom.mark#")]
    assert trace.marks["k"].to_list() == sorted(int(name.partition("#")[2]) for name in marks)
    assert len(trace.tables["ops"]) == len(names) - len(marks)
    assert set(trace.tables["kernels"]["phase"]) == {"attribution"}
    assert set(trace.tables["kernels"]["burst"]) == {3}


def test_ops_of_two_bursts_are_distinguished(tmp_path):
    path = write(tmp_path / "t.json", small())
    first, second = (read_trace(path, burst=burst).tables["ops"]["id"] for burst in (0, 1))
    assert not set(first) & set(second)


def test_nesting_parents_and_launching_ops(tmp_path):
    events = [
        op("inner", 20, 10),
        op("outer", 10, 100),
        op("elsewhere", 15, 100, tid=2),
        op("beside", 60, 5),
        op("at its start", 10, 5),
        call("cudaLaunchKernel", 22, 3, 1),
        call("cudaDeviceSynchronize", 115, 3, 2),
    ]
    tables = read_trace(write(tmp_path / "t.json", events)).tables
    name = dict(tables["ops"].select("id", "name").iter_rows())
    parents = {row[0]: name.get(row[1]) for row in tables["ops"].select("name", "parent").iter_rows()}
    assert parents == {
        "outer": None, "elsewhere": None, "inner": "outer", "beside": "outer", "at its start": "outer",
    }  # fmt: skip
    assert [name.get(row) for row in tables["launches"]["op"]] == ["inner", None]


def test_an_op_knows_its_frame_and_module(tmp_path):
    frames = [
        ("train.py(10): main", 0, 100),
        ("nn.Module: Linear_3", 10, 50),
        ("torch/nn/modules/linear.py(130): forward", 12, 45),
        ("<built-in function linear>", 14, 40),
    ]
    events = [op(name, ts, dur, cat="python_function") for name, ts, dur in frames]
    events += [op("aten::linear", 20, 10), op("aten::add", 70, 5)]
    ops = read_trace(write(tmp_path / "t.json", events)).tables["ops"]
    assert ops.select("name", "module", "source").rows() == [
        ("aten::linear", "Linear_3", "train.py(10): main"),
        ("aten::add", None, "train.py(10): main"),
    ]


def test_older_spellings(tmp_path):
    stack = (
        "torch/nn/functional.py(9): f;lib/site-packages/torch/x.py(1): g;model.py(7): forward;train.py(1): m"
    )
    events = [
        op(
            "aten::mm",
            10,
            50,
            cat="Operator",
            **{"Call stack": stack, "Module Hierarchy": "top(Net)::forward"},
        ),
        call("cudaLaunchKernel", 20, 5, 1, cat="Runtime"),
        {**kernel("k", 40, 5, 1), "cat": "Kernel"},
        {**kernel("Memcpy PtoP (Device -> Device)", 50, 5, 2), "cat": "Memcpy"},
        {**kernel("Memset (Device)", 60, 5, 3), "cat": "Memset"},
    ]
    tables = read_trace(write(tmp_path / "t.json", events)).tables
    assert tables["ops"].select("module", "source").row(0) == ("top(Net)::forward", "model.py(7): forward")
    assert tables["kernels"]["kind"].to_list() == ["compute", "copy", "set"]
    assert tables["kernels"]["direction"].to_list() == [None, "PtoP", None]
    assert len(tables["launches"]) == 1


def test_compiled_kernels_tell_where_they_came_from(tmp_path):
    args = {
        "kernel_file": "/tmp/c.py",
        "kernel_backend": "triton",
        "stream": 7,
        "grid": "grid(256,)",
        "num_warps": 4,
    }
    event = op("triton_poi_fused_gelu_0", 10, 5, **args, **{"Input Dims": [[64], [64]]})
    row = read_trace(write(tmp_path / "t.json", [event])).tables["ops"].row(0, named=True)
    assert json.loads(row["provenance"]) == {"file": "/tmp/c.py", "backend": "triton"}
    assert json.loads(row["shapes"]) == [[64], [64]]


@pytest.mark.parametrize(
    "shape", ["plain", "pretty", "bare", "base first", "base last", "gzip", "bom", "pretty bare"]
)
def test_every_shape_of_file(tmp_path, shape):
    events = small()
    path = tmp_path / ("t.json.gz" if shape == "gzip" else "t.json")
    if "bare" in shape:
        path.write_text(json.dumps(events, indent=4 if "pretty" in shape else None))
    elif shape == "base last":
        path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": BASE}))
    else:
        write(path, events, indent=2 if shape == "pretty" else None)
    if shape == "bom":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    tables = read_trace(path).tables
    base = 0 if "bare" in shape else BASE
    assert tables["kernels"].select("start_ns", "end_ns").rows() == [
        (base + 40_000, base + 840_125), (base + 1_040_000, base + 1_840_125),
    ]  # fmt: skip
    assert len(tables["ops"]) == 4 and len(tables["launches"]) == 2


def test_import_makes_a_sounding(tmp_path):
    trace = write(tmp_path / "t.json", small(), {"distributedInfo": {"rank": 3, "world_size": 4}})
    store = import_traces([trace], tmp_path / "t.fathom")
    again = open_store(store.path)
    assert again.ranks == [3] and again.manifest.made_by == "import"
    assert [problem.what for problem in again.manifest.problems] == ["ranks-missing"]
    assert again.table("steps").collect()["source"].to_list() == ["profiler", "profiler"]
    assert again.table("kernels").collect()["rank"].to_list() == [3, 3]


def test_the_allocators_events_and_peaks(real):
    document, trace = real
    expected = Counter()
    for event in document["traceEvents"]:
        if event["name"] == "[memory]" and event["args"]["Device Id"] >= 0:
            args = event["args"]
            kind = "free" if args["Bytes"] < 0 else "alloc"
            expected[kind, abs(args["Bytes"]), args["Total Allocated"], args["Total Reserved"]] += 1
    rows = trace.memory.filter(pl.col("event") != "peak")
    assert Counter(rows.select("event", "size", "allocated", "reserved").iter_rows()) == expected
    peak = trace.memory.filter(pl.col("event") == "peak")
    assert peak["allocated"].to_list() == ([max(key[2] for key in expected)] if expected else [])


def test_ranks_by_name_and_by_place(tmp_path):
    paths = [write(tmp_path / name, small()) for name in ("job_rank3.json", "job-rank-11.json", "other.json")]
    assert import_traces(paths, tmp_path / "a.fathom").ranks == [2, 3, 11]
    assert import_traces(paths[:1], tmp_path / "b.fathom").ranks == [3]
    assert import_traces(paths[2:], tmp_path / "c.fathom").ranks == [0]


ITERATIONS = [
    ("execute_context_1(888)_generation_0(0)", "prefill", 888),
    ("execute_context_0(0)_generation_8(8)", "decode", 8),
    ("execute_context_2(100)_generation_3(3)", "mixed", 103),
    ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", "mixed", 8192),
    ("execute_context_1(888_788544)_generation_0(0)", "prefill", 888),
]


def test_iterations_of_a_serving_engine_are_steps(tmp_path):
    events = [e for e in small() if not e["name"].startswith("ProfilerStep")]
    at = [1000.0 + 100 * k for k in range(len(ITERATIONS))]
    events += [
        op(name, ts, 90.0, cat="user_annotation") for ts, (name, _, _) in zip(at, ITERATIONS, strict=True)
    ]
    events.append(op("execute_context_of_mine", 5000.0, 90.0, cat="user_annotation"))
    steps = read_trace(write(tmp_path / "t.json", events)).steps
    assert steps.select("kind", "tokens").rows() == [(kind, tokens) for _, kind, tokens in ITERATIONS]
    assert set(steps["source"]) == {"engine"}
    assert (steps["end_ns"] - steps["mark_ns"]).to_list() == [100_000] * 4 + [90_000]


@shared
def test_the_iteration_of_a_real_trace_of_vllm_by_hand_count():
    """Its annotation: 9 requests read 8155 tokens while 37 generate one each."""
    steps = read_trace(TRACES / "vllm-piecewise-graph.json.gz").steps
    assert steps.select("kind", "tokens", "source").rows() == [("mixed", 8155 + 37, "engine")]


def test_what_a_trace_tells_of_its_devices_is_kept(tmp_path):
    record = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "numSms": 80}
    spare, odd = {"id": 1, "name": "Tesla V100"}, {"id": 0, "computeMajor": "x", "numSms": -3}
    keys = {"deviceProperties": [record, spare]}
    assert read_trace(write(tmp_path / "t.json", small(), keys)).origin.gpus == [
        {"index": 0, "name": "Tesla V100", "compute_capability": "7.0", "multiprocessors": 80}
    ]
    assert read_trace(
        write(tmp_path / "t.json", small(), {"deviceProperties": [odd, 5, {"id": [1]}]})
    ).origin.gpus == [{"index": 0, "name": ""}]


@pytest.mark.parametrize(
    ("hole_us", "said"), [(3.6e9, ["silence"]), (5e6, []), (0.0, [])], ids=["an hour", "5 s", "none"]
)
def test_a_hole_that_no_program_leaves_is_a_problem(tmp_path, hole_us, said):
    events = [{**e, "ts": e["ts"] + hole_us * (e["ts"] >= 1000)} for e in small()]
    assert [p.what for p in read_trace(write(tmp_path / "t.json", events)).problems] == said
