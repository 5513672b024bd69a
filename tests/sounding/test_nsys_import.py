"""Exports of Nsight Systems: a real one, and two made with the tables of other releases."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from fathom.analysis.intervals import union
from fathom.analysis.recording import read_timeline
from fathom.analysis.subjects import subjects
from fathom.api import Sounding
from fathom.errors import BadInputError
from fathom.report import print_report, save_page
from fathom.sounding import Store, import_traces
from tests.support.nsys_exports import (
    CUDA_GRAPH,
    EPOCH,
    GRAPH_NODES,
    MB,
    busy_by_sql,
    export_2021,
    export_2024,
)
from tests.support.paths import TRACES

REAL = TRACES / "nsys-h100-2gpu-1s.sqlite"
US = 1000
# pid and device number in the export, and the zero of its times, by rank.
OLD, NEW = {0: ((0, 0), 0)}, {0: ((100, 0), EPOCH), 1: ((200, 0), EPOCH)}


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> tuple[Path, Store]:
    folder = tmp_path_factory.mktemp("old")
    export = export_2021(folder / "old.sqlite")
    return export, import_traces([export], folder / "old.fathom")


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> tuple[Path, Store]:
    folder = tmp_path_factory.mktemp("new")
    export = export_2024(folder / "new.sqlite")
    return export, import_traces([export], folder / "new.fathom")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[Path, Store]:
    if not REAL.exists():
        pytest.skip("the shared traces are not here")
    return REAL, import_traces([REAL], tmp_path_factory.mktemp("real") / "real.fathom")


def counted(path: Path, query: str) -> int:
    with closing(sqlite3.connect(path)) as base:
        return base.execute(query).fetchone()[0]


def busy_ns(store: Store, rank: int) -> int:
    work = store.table("kernels", rank).collect()
    covered = union(work["start_ns"].to_numpy(), work["end_ns"].to_numpy())
    return int((covered.ends - covered.starts).sum())


def ledger_and_window(store: Store, rank: int) -> tuple[int, int, int]:
    """Busy time in the ledger of the rank's one device, and start and end of its windows."""
    (subject,) = subjects(read_timeline(store, rank))
    rows, windows = subject.ledger.rows, subject.ledger.windows
    busy = rows.filter(pl.col("entry").is_in(["compute", "communication", "copy"]))["ns"].sum()
    return busy, int(windows.starts[0]), int(windows.ends[-1])


def in_export(path: Path, key: tuple[int, int], zero: int, low: int, high: int) -> int:
    return busy_by_sql(path, low - zero, high - zero)[key]


@pytest.mark.parametrize(("made", "ranks"), [("old", OLD), ("new", NEW)])
def test_busy_time_is_that_of_the_export(made, ranks, request):
    path, store = request.getfixturevalue(made)
    assert store.ranks == [*ranks]
    for rank, (key, zero) in ranks.items():
        assert busy_ns(store, rank) == busy_by_sql(path)[key] > 0
        busy, low, high = ledger_and_window(store, rank)
        assert abs(busy - in_export(path, key, zero, low, high)) <= US


def test_busy_time_of_a_real_export(real):
    path, store = real
    zero = counted(path, "SELECT utcEpochNs - systemClockNs FROM TARGET_INFO_SESSION_START_TIME")
    assert store.ranks == [0, 1]
    for rank, key in enumerate([(111, 0), (112, 1)]):
        assert busy_ns(store, rank) == busy_by_sql(path)[key]
        busy, low, high = ledger_and_window(store, rank)
        assert abs(busy - in_export(path, key, zero, low, high)) <= US


def test_a_real_export_comes_out_whole(real):
    path, store = real
    for table, source in (
        ("ops", "NVTX_EVENTS WHERE eventType IN (59, 60)"),
        ("launches", "CUPTI_ACTIVITY_KIND_RUNTIME"),
        ("kernels", "CUPTI_ACTIVITY_KIND_KERNEL"),
    ):
        rows = store.table(table).collect()
        rows = rows.filter(pl.col("kind") == "compute") if table == "kernels" else rows
        expected = counted(path, f"SELECT count(*) FROM {source}")
        assert len(rows) == expected, table
    launched = (
        store.table("kernels")
        .collect()
        .join(store.table("launches").collect(), on=["rank", "correlation"], how="inner")
    )
    assert (launched["start_ns"] >= launched["start_ns_right"]).all()
    assert store.manifest.problems == []
    assert {"cudaLaunchKernel", "cudaMemcpyAsync"} <= set(store.table("launches").collect()["api"])
    assert store.manifest.versions["driver"] == "580.95.05"


def test_ops_of_emit_nvtx_have_names_shapes_and_parents(real):
    ops = real[1].table("ops", 0).collect()
    mm = ops.filter(pl.col("name") == "aten::mm")
    assert len(mm) == 140 and mm["kind"].unique().to_list() == ["op"]
    parents = mm.join(ops, left_on="parent", right_on="id")["name_right"]
    assert parents.unique().to_list() == ["aten::matmul"]
    regions = ops.filter(pl.col("name").str.starts_with("FSDP::"))
    assert regions["kind"].unique().to_list() == ["annotation"]


@pytest.mark.parametrize(("made", "numbers"), [("old", [0, 1, 2, 3, 4, 5]), ("new", [10, 11, 12, 13, 14])])
def test_nvtx_steps_are_found(made, numbers, request):
    path, store = request.getfixturevalue(made)
    steps = store.table("steps", 0).collect()
    assert steps["step"].to_list() == numbers and set(steps["source"]) == {"range"}
    zero = 0 if made == "old" else EPOCH
    with closing(sqlite3.connect(path)) as base:
        named = "(SELECT value FROM StringIds s WHERE s.id = textId)" if made == "new" else "text"
        own = "AND globalTid & 0xFFFFFF = 100" if made == "new" else ""
        query = f'SELECT start, "end" FROM NVTX_EVENTS WHERE {named} GLOB ? {own} ORDER BY start'
        ranges = base.execute(query, ["train_step *" if made == "new" else "iteration"]).fetchall()
    assert steps["mark_ns"].to_list() == [start + zero for start, _ in ranges]
    assert steps["end_ns"].to_list() == [start + zero for start, _ in ranges[1:]] + [ranges[-1][1] + zero]
    assert not set(store.table("ops").collect()["name"]) & {"iteration", "train_step 10"}


def test_any_range_may_be_the_step(old, tmp_path):
    path, _ = old
    store = import_traces([path], tmp_path / "f.fathom", step_range="forward")
    steps = store.table("steps").collect()
    assert len(steps) == 6 and set(store.table("ops").collect()["name"]) == {"iteration"}
    with pytest.raises(BadInputError, match=r"No range has a name like 'backward'; .*forward"):
        import_traces([path], tmp_path / "b.fathom", step_range="backward")
    assert not (tmp_path / "b.fathom").exists()


def test_processes_with_their_own_device_0_are_ranks_on_their_gpus(new):
    _, store = new
    devices = [store.table("kernels", rank).collect()["device"].unique().to_list() for rank in (0, 1)]
    assert devices == [[3], [1]]
    assert [gpu["index"] for gpu in store.machine["gpus"]] == [1, 3]
    assert store.machine["gpus"][0]["compute_capability"] == "9.0"
    assert [(rank.pid, rank.host, rank.devices) for rank in store.manifest.ranks] == [
        (100, "node7", {3: "NVIDIA H100 80GB HBM3"}),
        (200, "node7", {1: "NVIDIA H100 80GB HBM3"}),
    ]


def test_kinds_of_work_and_calls(new):
    _, store = new
    kernels = store.table("kernels", 0).collect()
    assert Counter(kernels["kind"]) == {"compute": 30, "collective": 5, "copy": 5, "set": 5}
    copy = kernels.filter(pl.col("kind") == "copy").row(0, named=True)
    assert (copy["direction"], copy["bytes"], copy["name"]) == (
        "DtoH pageable",
        MB,
        "Memcpy DtoH (Device -> Pageable)",
    )
    assert set(store.table("launches", 0).collect()["api"]) == {
        "cudaMemsetAsync", "cudaMemcpyAsync", "cudaGraphLaunch", "cuLaunchKernelEx",
    }  # fmt: skip


def test_graphs_by_node_and_as_a_whole(new):
    _, store = new
    kernels = store.table("kernels", 0).collect()
    assert set(kernels["graph_node"].drop_nulls()) == set(GRAPH_NODES)
    assert len(kernels.filter(pl.col("name") == f"CUDA graph {CUDA_GRAPH}")) == 5
    lacking = {row["what"]: row["why"] for row in store.manifest.abstained}
    assert "--cuda-graph-trace=node" in lacking["kernels in graphs"]
    assert lacking["calls of the operating system"] == "they are not imported"


def test_gpu_metrics_are_samples(new):
    _, store = new
    samples = store.table("samples", 0).collect()
    names = store.manifest.ranks[0].facts["counter_groups"][samples["group"][0]]
    assert names == ["SMs Active [Throughput %]", "DRAM Read Bandwidth [Throughput %]"]
    assert samples["device"].unique().to_list() == [3]
    assert samples["end_ns"].to_list() == [EPOCH + 900_000 + 100_000 * place for place in range(20)]
    assert (samples["end_ns"] - samples["start_ns"])[1:].unique().to_list() == [100_000]
    values = samples["values"].to_list()
    assert values[5] == [5.0, 10.0] and values[4][0] == 4.0 and values[4][1] != values[4][1]


def test_what_an_export_lacks_is_said(old):
    _, store = old
    assert store.machine["gpus"][0]["name"] == "Tesla V100-SXM2-16GB"
    assert store.manifest.abstained == [] and store.manifest.problems == []


def test_a_range_that_was_never_popped_is_a_problem_that_spoils_nothing(new):
    _, store = new
    (problem,) = {p.what: p for p in store.manifest.problems}.values()
    assert (problem.what, problem.count, problem.spoils) == ("open-ranges", 1, [])


def test_no_environment_of_the_machine_is_kept(new):
    _, store = new
    every = b"".join(file.read_bytes() for file in store.path.rglob("*") if file.is_file())
    assert b"swordfish" not in every


def changed(path: Path, folder: Path, *statements: str) -> Path:
    """A copy of an export after SQL statements."""
    copy = folder / "changed.sqlite"
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as base:
        for statement in statements:
            base.execute(statement)
        base.commit()
    return copy


K = "CUPTI_ACTIVITY_KIND_KERNEL"


def test_damaged_rows_are_left_out_and_counted(new, tmp_path):
    damaged = changed(
        new[0], tmp_path,
        f"UPDATE {K} SET end = start - 5 WHERE rowid = 1",
        f"UPDATE {K} SET start = 'noon' WHERE rowid = 2",
        f"UPDATE {K} SET demangledName = 99999, shortName = 99999 WHERE rowid = 3",
        f"UPDATE {K} SET deviceId = -7 WHERE rowid = 4",
        f"UPDATE {K} SET registersPerThread = {1 << 60}, dynamicSharedMemory = {2**63 - 1} WHERE rowid = 5",
    )  # fmt: skip
    store = import_traces([damaged], tmp_path / "d.fathom")
    problems = {problem.what: problem.count for problem in store.manifest.problems if problem.rank == 0}
    assert problems == {
        "bad-duration": 1, "bad-time": 1, "no-name": 1, "no-device": 1, "open-ranges": 1,
        "graph-without-kernels": 2,
    }  # fmt: skip
    kernels = store.table("kernels", 0).collect()
    assert len(kernels) == 41 and kernels["registers"].null_count() == 16


@pytest.mark.parametrize(
    "drop", ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_GPU", "StringIds"]
)
def test_an_export_without_a_table(new, tmp_path, drop):
    less = changed(new[0], tmp_path, f"DROP TABLE {drop}")
    if drop == "StringIds":
        with pytest.raises(BadInputError, match="not an export of Nsight Systems"):
            import_traces([less], tmp_path / "l.fathom")
        return
    store = import_traces([less], tmp_path / "l.fathom")
    assert busy_ns(store, 0) == busy_by_sql(new[0])[100, 0]
    assert len(store.manifest.abstained) >= 3


def test_a_view_is_not_read(new, tmp_path):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start FROM n"
    trap = changed(new[0], tmp_path, f"DROP TABLE {K}", f"CREATE VIEW {K} AS {endless}")
    store = import_traces([trap], tmp_path / "v.fathom")
    assert Counter(store.table("kernels", 0).collect()["kind"]) == {"compute": 5, "copy": 5, "set": 5}


def test_a_generated_column_is_not_read(new, tmp_path):
    trap = changed(
        new[0], tmp_path, "DROP TABLE GPU_METRICS",
        "CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, "
        "value AS (length(zeroblob(1000))))",
        "INSERT INTO GPU_METRICS VALUES (1, 2, 3)",
    )  # fmt: skip
    assert not import_traces([trap], tmp_path / "g.fathom").has("samples")


@pytest.mark.parametrize("keep", [20, 4096, 30_000])
def test_a_cut_database_is_one_sentence(new, tmp_path, keep):
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(new[0].read_bytes()[:keep])
    with pytest.raises(BadInputError, match=r"cut\.sqlite cannot be imported: "):
        import_traces([cut], tmp_path / "c.fathom")


def test_pages_that_refer_to_each_other_are_bounded(tmp_path):
    """An interior page with one leaf as all of its children claims more rows than there are bytes."""
    path = tmp_path / "bomb.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA page_size = 4096")
        base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        base.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        base.executemany("INSERT INTO StringIds VALUES (?, NULL)", [(i % 100,) for i in range(100_000)])
        base.commit()
        root = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 'StringIds'").fetchone()[0]
    data = bytearray(path.read_bytes())
    page = memoryview(data)[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5  # an interior page of a table
    cells, first = int.from_bytes(page[3:5], "big"), int.from_bytes(page[12:14], "big")
    child = bytes(page[first : first + 4])
    for cell in range(cells):
        place = int.from_bytes(page[12 + 2 * cell : 14 + 2 * cell], "big")
        page[place : place + 4] = child
    for pointer in range(cells, 1900):  # the array of pointers, up to the cells
        at = 12 + 2 * pointer
        if at + 2 > int.from_bytes(page[5:7], "big"):
            break
        page[at : at + 2] = first.to_bytes(2, "big")
        page[3:5] = (pointer + 1).to_bytes(2, "big")
    path.write_bytes(data[: root * 4096 + 40 * 4096])
    with pytest.raises(BadInputError, match="cannot be imported"):
        import_traces([path], tmp_path / "b.fathom")


def test_a_report_needs_nsys(tmp_path, monkeypatch):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"NVDA")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="can only be read by nsys, which is not on the PATH"):
        import_traces([report], tmp_path / "r.fathom")


@pytest.mark.parametrize("status", [0, 3])
def test_a_report_is_exported_by_nsys(new, tmp_path, monkeypatch, status):
    """A stand-in for nsys copies an export to the path that nsys would write."""
    report, command = tmp_path / "run.nsys-rep", tmp_path / "nsys"
    report.write_bytes(b"NVDA")
    copies = f'[ "$1 $2 $3 $4" = "export --type sqlite --output" ] && /bin/cp {new[0]} "$5"'
    command.write_text(f'#!/bin/sh\necho "no license" >&2\n{copies}\nexit {status}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if status:
        with pytest.raises(BadInputError, match=r"run\.nsys-rep cannot be exported: nsys says 'no license'"):
            import_traces([report], tmp_path / "r.fathom")
    else:
        assert import_traces([report], tmp_path / "r.fathom").ranks == [0, 1]


def test_a_kernel_card_is_about_the_launches_in_the_windows(real):
    (copies,) = Sounding(real[1]).kernel("HtoD pinned", rank=0)
    per_window_us = copies.time_us["mean"] * copies.launches
    assert per_window_us == pytest.approx(1e3 * copies.ms, rel=0.01)


def test_much_time_outside_the_windows_is_reported(real):
    result = Sounding(real[1]).examine()
    seconds = sum(window.end_ns - window.start_ns for window in result.devices[0].windows) / 1e9
    (why,) = (entry.why for entry in result.abstained if entry.what == "windows")
    assert why.startswith(f"only {seconds:.3g} of the ") and seconds < 0.6


def test_windows_are_not_called_steps(real, tmp_path):
    sounding = Sounding(real[1])
    out = StringIO()
    print_report(sounding.examine(), Console(file=out, width=120, no_color=True))
    assert "% of window" in out.getvalue() and "window ms" in out.getvalue()
    save_page(sounding.recording(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "launches per window" in page and "Window 2 as profiled" in page
    assert "per step" not in page and "Time of a step" not in page
