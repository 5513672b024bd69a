"""Results of rocprofv3: a database and a JSON document of the same run give the same tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from fathom.errors import BadInputError
from fathom.sounding import Store, import_traces
from tests.support import rocprof_results as made


@pytest.fixture(scope="module", params=[made.database, made.document], ids=["rocpd", "json"])
def store(request, tmp_path_factory) -> Store:
    folder = tmp_path_factory.mktemp("rocprof")
    suffix = "db" if request.param is made.database else "json"
    return import_traces([request.param(folder / f"r.{suffix}")], folder / "r.fathom")


def test_work_is_that_of_the_run(store):
    kernels = store.table("kernels").collect()
    expected = Counter((gpu, start, end) for _, _, _, gpu, start, end, _ in made.run()[0])
    assert Counter(kernels.select("device", "start_ns", "end_ns").iter_rows()) == expected
    for gpu in (0, 1):
        mine = kernels.filter(device=gpu)
        assert (mine["end_ns"] - mine["start_ns"]).sum() == made.busy_ns(gpu)
    assert Counter(kernels["kind"]) == {"compute": 20, "collective": 10, "copy": 10}
    assert kernels.filter(kind="copy")["direction"].unique().to_list() == ["HtoD"]
    assert kernels.filter(kind="compute").select("grid", "block").unique().rows() == [("4x1x1", "256x1x1")]


def test_launches_and_steps(store):
    launches = store.table("launches").collect()
    joined = store.table("kernels").collect().join(launches, on="correlation")
    assert len(joined) == 40 and (joined["start_ns"] > joined["start_ns_right"]).all()
    assert Counter(launches["api"]) == {"hipLaunchKernel": 30, "hipMemcpyAsync": 10}
    steps = store.table("steps").collect()
    assert steps["step"].to_list() == [0, 1, 2, 3, 4] and set(steps["thread"]) == {made.THREAD}
    assert steps["mark_ns"].to_list() == [start for _, start, _ in made.run()[1]]


def test_the_machine_and_its_secrets(store):
    assert store.machine["gpus"] == [{"index": 0, "name": made.MODEL}, {"index": 1, "name": made.MODEL}]
    (rank,) = store.manifest.ranks
    assert rank.pid == made.PID and store.manifest.problems == [] and store.manifest.abstained == []
    every = b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())
    assert b"swordfish" not in every


WRONG = {
    "a cut document": (lambda text: text[: len(text) // 2], "not a valid result of rocprofv3"),
    "a text as time": (
        lambda text: text.replace('"start_timestamp": 1', '"start_timestamp": "1', 1),
        "not a valid",
    ),
    "no dispatches": (lambda text: json.dumps({"rocprofiler-sdk-tool": [{}]}), "no kernel dispatches"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_document_is_one_sentence(tmp_path, name):
    change, says = WRONG[name]
    path = made.document(tmp_path / "r.json")
    path.write_text(change(path.read_text()))
    with pytest.raises(BadInputError, match=says):
        import_traces([path], tmp_path / "r.fathom")


def test_impossible_numbers_are_left_out(tmp_path):
    path = made.document(tmp_path / "r.json")
    document = json.loads(path.read_text())
    first, second, *_ = document["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    first["end_timestamp"], second["start_timestamp"] = 2**64 + 5, -3
    path.write_text(json.dumps(document))
    store = import_traces([path], tmp_path / "r.fathom")
    assert {p.what: p.count for p in store.manifest.problems} == {"bad-duration": 1, "bad-time": 1}
    assert len(store.table("kernels").collect()) == 38


def test_work_without_calls_says_so(tmp_path):
    path: Path = made.document(tmp_path / "r.json")
    document = json.loads(path.read_text())
    document["rocprofiler-sdk-tool"][0]["buffer_records"]["hip_api"] = []
    document["rocprofiler-sdk-tool"][0]["buffer_records"]["marker_api"] = []
    path.write_text(json.dumps(document))
    store = import_traces([path], tmp_path / "r.fathom")
    assert {"launches", "regions"} <= {row["what"] for row in store.manifest.abstained}
    assert store.table("kernels").select(pl.len()).collect().item() == 40
