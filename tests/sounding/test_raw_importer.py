"""Soundings made of raw records: hand-written ones, where every figure is known, and real recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.errors import BadInputError, FathomError
from fathom.sounding import import_raw, open_store
from fathom.sounding.raw import traces
from tests.support.probe_programs import launch

T0 = 1_700_000_000_000_000_000
MS = 1_000_000
COLUMNS = ["loader", "batch", "worker", "pid", "epoch", "nth", "thread", "start", "wait", "fetch", "collate"]


def process(pid: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "t": "process",
        "pid": pid,
        "rank": None,
        "role": "rank",
        "python": "3.12.1",
        "versions": {},
        **more,
    }


def clock(k: int = 0, source: str = "optimizer") -> dict[str, Any]:
    return {"t": "clock", "source": source, "k": k, "ns": T0}


def marks(first: int, count: int, phase: str = "clean", burst: int = 1, **more: Any) -> dict[str, Any]:
    times = [T0 + 10 * MS * k for k in range(first, first + count)]
    about = {
        "source": "optimizer",
        "thread": 7,
        "kind": "train",
        "samples": 4,
        "tokens": None,
        "stream": None,
    }
    return {"t": "marks", "k": first, "ns": times, "phase": phase, "burst": burst, **about, **more}


def write(folder: Path, processes: dict[int, list[dict[str, Any]]], **files: Any) -> Path:
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for pid, records in processes.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (raw / f"proc-{pid}.jsonl").write_text(lines)
    for name, content in files.items():
        (raw / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_step_has_both_its_ends_and_the_kind_of_the_mark_that_ends_it(tmp_path):
    ends = {"kind": "train+evaluation", "samples": 8}
    records = [process(), clock(), marks(0, 3), marks(3, 1, **ends), marks(4, 2), {"t": "end", "steps": 6}]
    store = import_raw(write(tmp_path, {7: records}, end={"ended": "finished", "exit_status": 0}))
    steps = store.table("steps").collect()
    assert steps["step"].to_list() == [0, 1, 2, 3, 4]
    assert steps["kind"].to_list() == ["train", "train", "train+evaluation", "train", "train"]
    assert steps["samples"].to_list() == [4, 4, 8, 4, 4]
    assert (steps["end_ns"] - steps["mark_ns"]).to_list() == [10 * MS] * 5
    assert store.manifest.ended == "finished" and store.manifest.problems == []
    assert [(p.phase, p.steps) for p in store.manifest.phases] == [("clean", 6)]


def test_marks_of_a_clock_that_was_given_up_are_no_steps(tmp_path):
    loader = {"source": "loader", "phase": "settle", "burst": 0}
    records = [process(), clock(0, "loader"), marks(0, 8, **loader), clock(8), marks(8, 5)]
    store = import_raw(write(tmp_path, {7: records}))
    assert store.table("steps").collect()["step"].to_list() == [8, 9, 10, 11]
    assert store.manifest.ranks[0].step_on == "optimizer"


def test_bursts_of_a_clock_that_was_given_up_are_left_out(tmp_path):
    """They may even have the file of a later burst, where bursts were numbered anew with each clock."""
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7, "args": {}}
    event["args"] = {"device": 0, "stream": 7, "correlation": 1}
    trace = {"t": "trace", "phase": "timeline", "burst": 2, "file": "trace-7-2-timeline.json", "stop_ns": T0}
    loader = {"source": "loader"}
    early = [clock(0, "loader"), marks(0, 4, "timeline", 2, **loader), {**trace, "k0": 0, "k1": 3}]
    late = [clock(8), marks(8, 5, "timeline", 2), {**trace, "k0": 8, "k1": 12}]
    folder = write(tmp_path, {7: [process(), *early, *late]})
    (folder / "raw" / trace["file"]).write_text(json.dumps({"traceEvents": [event]}))
    assert import_raw(folder).table("kernels").collect().height == 1


@pytest.mark.parametrize("more", [True, False])
def test_a_burst_that_the_program_left_at_once_is_no_damage(tmp_path, more):
    """If steps follow, a trace without work is."""
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaStreamSynchronize",
        "pid": 1,
        "tid": 7,
        "ts": 1,
        "dur": 1,
    }
    trace = {"t": "trace", "phase": "timeline", "burst": 2, "file": "trace-7-2.json", "k0": 4, "k1": 4}
    marked = [marks(0, 4, "clean", 1), marks(4, 3 if more else 1, "timeline", 2)]
    folder = write(tmp_path, {7: [process(), clock(), *marked, {**trace, "stop_ns": T0}]})
    (folder / "raw" / trace["file"]).write_text(json.dumps({"traceEvents": [call]}))
    problems = import_raw(folder).manifest.problems
    assert [problem.text for problem in problems] == (
        ["The trace trace-7-2.json has neither operators nor device work, so its burst was left out."]
        if more
        else []
    )


@pytest.mark.parametrize("again", [True, False])
def test_a_settling_drops_the_timeline_only_where_a_later_one_exists(tmp_path, again):
    trace = {"t": "trace", "phase": "timeline", "stop_ns": T0}
    early = [marks(0, 4, "timeline", 2), {**trace, "burst": 2, "file": "trace-7-2.json", "k0": 0, "k1": 3}]
    late = [marks(8, 4, "timeline", 4), {**trace, "burst": 4, "file": "trace-7-4.json", "k0": 8, "k1": 11}]
    resettled = [marks(4, 4, "clean", 3), {"t": "resettled", "k": 6}]
    folder = write(tmp_path, {7: [process(), clock(), *early, *resettled, *(late if again else [])]})
    for number in (2, 4):
        event = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 7, "ts": 1, "dur": 1, "args": {}}
        (folder / "raw" / f"trace-7-{number}.json").write_text(json.dumps({"traceEvents": [event]}))
    store = import_raw(folder)
    timeline = store.table("steps").collect().filter(phase="timeline")
    assert timeline["burst"].unique().to_list() == ([4] if again else [2])
    assert store.table("ops").collect()["burst"].unique().to_list() == ([4] if again else [2])
    assert ("slower-steps" in {problem.what for problem in store.manifest.problems}) != again
    assert ("the first 6 steps" in {absence["what"] for absence in store.manifest.abstained}) == again


def test_a_timeline_of_an_abandoned_clock_does_not_outweigh_a_settling(tmp_path):
    trace = {"t": "trace", "phase": "timeline", "burst": 2, "file": "trace-7-2.json", "k0": 0, "k1": 3}
    early = [clock(0, "loader"), marks(0, 4, "timeline", 2, source="loader"), {**trace, "stop_ns": T0}]
    late = [clock(8), marks(8, 9, "clean", 3), {"t": "resettled", "k": 12}]
    store = import_raw(write(tmp_path, {7: [process(), *early, *late]}))
    steps = store.table("steps").collect()
    assert steps.filter(phase="settle")["step"].to_list() == [8, 9, 10, 11]
    assert "the first 4 steps" in {absence["what"] for absence in store.manifest.abstained}
    assert "slower-steps" not in {problem.what for problem in store.manifest.problems}


def test_a_settling_of_an_abandoned_source_of_steps_counts_no_steps(tmp_path):
    """The program called fathom.step() only after steps of an optimizer had settled."""
    early = [clock(0, "optimizer"), marks(0, 6, "clean", 1, source="optimizer"), {"t": "resettled", "k": 4}]
    store = import_raw(write(tmp_path, {7: [process(), *early, clock(8), marks(8, 9, "clean", 3)]}))
    assert not [absence for absence in store.manifest.abstained if "first" in absence["what"]]
    assert store.table("steps").collect()["phase"].unique().to_list() == ["clean"]


def test_a_lost_mark_leaves_a_gap_and_no_long_step(tmp_path):
    store = import_raw(write(tmp_path, {7: [process(), clock(), marks(0, 3), marks(5, 3)]}))
    assert store.table("steps").collect()["step"].to_list() == [0, 1, 5, 6]


def test_micro_steps_tile_the_step_from_the_first_batch_on(tmp_path):
    at = [T0 + 12 * MS, T0 + 15 * MS]
    inner = [{"t": "micro", "k": 1, "ns": ns, "source": "loader", "thread": 7} for ns in at]
    steps = (
        import_raw(write(tmp_path, {7: [process(), clock(), marks(0, 3), *inner]})).table("steps").collect()
    )
    result = steps.filter(pl.col("kind") == "micro-step")
    assert result["parent"].to_list() == [1, 1]
    assert result["mark_ns"].to_list() == at and result["end_ns"].to_list() == [at[1], T0 + 20 * MS]


def test_no_device_boundary_lies_before_its_mark(tmp_path):
    elapsed = [[0, 0], [1, 9 * MS], [2, 21 * MS]]
    records = [process(), clock(), marks(0, 4), {"t": "device", "burst": 1, "marks": elapsed}]
    steps = import_raw(write(tmp_path, {7: records})).table("steps").collect()
    lags = (steps["device_ns"] - steps["mark_ns"]).drop_nulls().to_list()
    assert lags == [1 * MS, 0, 2 * MS]
    assert steps["device_end_ns"][0] == steps["device_ns"][1]


def test_stages_of_a_batch_come_from_the_worker_that_made_it(tmp_path):
    start = T0 + 11 * MS
    rows = [[0, n, 0, 8, 1, n, 7, start + n * 10 * MS, 3 * MS, None, None] for n in range(2)]
    made = [
        {"t": "batch", "worker": 0, "epoch": 1, "nth": n, "start": T0, "fetch": 100 + n, "collate": 10 + n}
        for n in range(3)
    ]
    ours = [process(), clock(), marks(0, 4), {"t": "batches", "columns": COLUMNS, "rows": rows}]
    store = import_raw(write(tmp_path, {7: ours, 8: [process(8, role="worker"), *made]}))
    result = store.table("input").collect()
    assert result["fetch_ns"].to_list() == [100, 101] and result["collate_ns"].to_list() == [10, 11]
    assert result["threads"].null_count() == result["cpu_wait_ns"].null_count() == 2  # these tell neither
    waits = store.table("waits").collect()
    assert waits["cause"].to_list() == ["input", "input"]
    assert (waits["end_ns"] - waits["start_ns"]).to_list() == [3 * MS] * 2
    assert set(waits["phase"]) == {"clean"} and store.ranks == [0]


def test_threads_of_a_worker_and_its_wait_for_a_processor_come_with_its_batch(tmp_path):
    at = {"epoch": 1, "nth": 0, "start": T0, "fetch": 100, "collate": 10}
    record = {"t": "batch", "worker": 0, **at, "threads": 4, "cpu_wait": 25}
    rows = [[0, n, 0, 8, 1, n, 7, T0 + (11 + n) * MS, 3 * MS, None, None] for n in range(2)]
    ours = [process(), clock(), marks(0, 4), {"t": "batches", "columns": COLUMNS, "rows": rows}]
    store = import_raw(write(tmp_path, {7: ours, 8: [process(8, role="worker"), record]}))
    result = store.table("input").select("threads", "cpu_wait_ns").collect()
    assert result.rows() == [(4, 25), (None, None)]  # the worker died before it told of the second


def test_two_processes_that_are_the_same_rank_are_both_kept_and_named(tmp_path):
    few, many = [process(7), clock(), marks(0, 3)], [process(8), clock(), marks(0, 30)]
    store = import_raw(write(tmp_path, {7: few, 8: many}))
    assert [len(store.table("steps", rank).collect()) for rank in store.ranks] == [29, 2]
    assert [rank.pid for rank in store.manifest.ranks] == [8, 7]
    (problem,) = store.manifest.problems
    assert problem.what == "processes" and not problem.spoils
    assert "(process 8)" in problem.text and "rank 1 is" in problem.text and "--rank N" in problem.text


def test_of_many_processes_that_are_one_rank_some_are_left_out_in_words(tmp_path):
    every = {pid: [process(pid), clock(), marks(0, 2 + pid)] for pid in range(1, 13)}
    store = import_raw(write(tmp_path, every))
    assert len(store.ranks) == 8 and "; 4 more are left out." in store.manifest.problems[0].text


@pytest.mark.parametrize(
    ("reason", "ended"), [("exception ValueError", "exception"), ("exit", "exited"), ("os._exit", "exited")]
)
def test_a_status_is_no_crash_unless_an_exception_ended_the_program(tmp_path, reason, ended):
    end = {"t": "end", "ns": 1, "steps": 6, "reason": reason, "devices": {}}
    record = {"ended": "exited", "exit_status": 1}
    store = import_raw(write(tmp_path, {7: [process(7), clock(), marks(0, 6), end]}, end=record))
    assert store.manifest.ended == ended


def test_ranks_have_tables_of_their_own(tmp_path):
    written = {pid: [process(pid, rank=pid - 7, world=2), clock(), marks(0, 3 + pid)] for pid in (7, 8)}
    store = import_raw(write(tmp_path, written))
    assert store.ranks == [0, 1]
    assert [len(store.table("steps", rank).collect()) for rank in (0, 1)] == [9, 10]


@pytest.mark.parametrize(("killed", "dead"), [((7, 8), 0), ((8,), 1)])
def test_workers_that_a_successful_program_killed_did_not_crash(tmp_path, killed, dead):
    """Ray ends all workers in this way. If other ranks recorded their end, one without it crashed."""
    ended = {"t": "end", "ns": T0 + 1000 * MS, "steps": 6, "reason": "exit", "devices": {}}
    ranks = {pid: [process(pid, rank=pid - 7, world=2), clock(), marks(0, 6)] for pid in (7, 8)}
    written = {pid: rows if pid in killed else [*rows, ended] for pid, rows in ranks.items()}
    store = import_raw(write(tmp_path, written, end={"ended": "finished", "exit_status": 0}))
    assert sum("was killed" in problem.text for problem in store.manifest.problems) == dead


@pytest.mark.parametrize("tail", [b'{"t":"marks","k":6,"ns":[17', b"\x00\x00\xff\xfe", b"[1]"])
def test_a_torn_last_line_is_a_crash_and_no_error(tmp_path, tail):
    folder = write(tmp_path, {7: [process(), clock(), marks(0, 6)]})
    with (folder / "raw" / "proc-7.jsonl").open("ab") as file:
        file.write(tail)
    store = import_raw(folder)
    assert len(store.table("steps").collect()) == 5
    assert store.manifest.ended == "killed" and store.manifest.problems == []


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[]",
        '{"t":"marks"}',
        '{"t":"batches","columns":["a"],"rows":[[1,2]]}',
        '{"t":"marks","ns":3}',
        '{"t":"dynamo","graphs":1}',
        '{"t":"dynamo","frames":1,"reasons":[["print"]]}',
        '{"t":"dynamo","frames":1,"given_up":[{"line":"three"}]}',
    ],
)
def test_a_damaged_record_is_left_out_and_counted(tmp_path, line):
    folder = write(tmp_path, {7: [process(), clock(), marks(0, 6)]})
    file = folder / "raw" / "proc-7.jsonl"
    file.write_text(line + "\n" + file.read_text())
    store = import_raw(folder)
    assert len(store.table("steps").collect()) == 5
    assert [(problem.what, problem.count) for problem in store.manifest.problems] == [("torn-records", 1)]


@pytest.mark.parametrize("name", ["launch", "end"])
def test_a_damaged_file_of_the_parent_is_told(tmp_path, name):
    folder = write(tmp_path, {7: [process(), clock(), marks(0, 6)]})
    (folder / "raw" / f"{name}.json").write_text('{"half')
    store = import_raw(folder)
    assert [problem.what for problem in store.manifest.problems] == ["damaged-record"]


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ({"ended": "crashed", "exit_status": 139}, "crashed"),
        ({"ended": "exited", "exit_status": 3}, "exited"),
        ({"ended": "stopped", "exit_status": 0}, "stopped"),
        ({"ended": "finished", "exit_status": 0}, "no-steps"),
    ],
)
def test_a_program_without_steps_still_gives_a_sounding(tmp_path, end, ended):
    store = import_raw(write(tmp_path, {}, end=end, launch={"command": ["python", "x.py"], "name": "x"}))
    assert store.manifest.ended == ended and store.manifest.exit_status == end["exit_status"]
    assert store.manifest.name == "x" and store.manifest.made_by == "run"
    assert [absence["what"] for absence in store.manifest.abstained] == ["steps"]
    assert store.table("steps").collect().is_empty()


def test_notes_become_abstentions_or_problems(tmp_path):
    notes = [
        {"t": "note", "what": "own-profiler", "text": "waited"},
        {"t": "note", "what": "fault", "text": "profiling failed"},
        {"t": "note", "what": "what-if gc", "text": "nothing to collect"},
        {"t": "note", "what": "", "text": "of nothing"},
    ]
    store = import_raw(write(tmp_path, {7: [process(), clock(), marks(0, 6), *notes]}))
    assert store.manifest.abstained == [
        {"what": "own-profiler", "why": "waited"},
        {"what": "what-if gc", "why": "nothing to collect"},
    ]
    assert [(problem.what, problem.text) for problem in store.manifest.problems] == [
        ("fault", "profiling failed"),
        ("", "of nothing"),
    ]


def test_what_the_compiler_counted_last_is_a_fact_of_the_rank(tmp_path):
    frame = {"file": "net.py", "line": 3, "function": "forward", "why": "print", "at": ["net.py", 5]}
    early = {"t": "dynamo", "ns": T0, "frames": 1, "graphs": 1}
    again = {"file": "net.py", "line": 9, "function": "step", "why": "n == 3", "times": 8, "limited": True}
    counts = {"reasons": [["print", 1]], "breaks": [], "given_up": [frame], "recompiled": [again]}
    late = {**early, "frames": 2, **counts, "new": 1}
    store = import_raw(write(tmp_path, {7: [process(), clock(), early, marks(0, 6), late]}))
    said = open_store(store.path).manifest.ranks[0].facts["compiler"]
    assert said == {"frames": 2, "graphs": 1, **counts}


def test_where_nothing_was_compiled_no_compiler_counted(tmp_path):
    store = import_raw(write(tmp_path, {7: [process(), clock(), marks(0, 6)]}))
    assert "compiler" not in store.manifest.ranks[0].facts


@pytest.mark.parametrize("content", [None, b"", b'{"traceEvents": [', b"\x1f\x8b\x08broken"])
def test_a_trace_that_is_lost_or_damaged_is_a_problem(tmp_path, content):
    trace = {
        "t": "trace",
        "phase": "timeline",
        "burst": 2,
        "file": "trace-7-2-timeline.json",
        "k0": 2,
        "k1": 4,
    }
    folder = write(tmp_path, {7: [process(), clock(), marks(0, 2), marks(2, 4, "timeline", 2), trace]})
    if content is not None:
        (folder / "raw" / trace["file"]).write_bytes(content)
    store = import_raw(folder)
    assert [problem.what for problem in store.manifest.problems] == ["trace-lost"]
    assert len(store.table("steps").collect()) == 5


def test_a_trace_without_operators_is_no_damage(tmp_path):
    """vLLM's scheduler has steps, and its workers, other processes, run the operators."""
    records, file = [process(), clock(), marks(0, 2), marks(2, 4, "timeline", 2)], "trace-7-2-timeline.json"
    records.append({"t": "trace", "phase": "timeline", "burst": 2, "file": file, "k0": 2, "k1": 4})
    folder = write(tmp_path, {7: records})
    begun = {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": 7, "tid": 7, "ts": 1, "s": "g"}
    (folder / "raw" / file).write_text(json.dumps({"schemaVersion": 1, "traceEvents": [begun]}))
    store = import_raw(folder)
    assert not store.manifest.problems
    (why,) = (row["why"] for row in store.manifest.abstained if row["what"] == "operators of rank 0")
    assert "1 burst" in why


def test_what_is_no_recording_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="has no raw records"):
        import_raw(tmp_path)


def test_a_sounding_is_not_written_over(tmp_path):
    folder = write(tmp_path / "a", {7: [process(), clock(), marks(0, 6)]})
    import_raw(folder, tmp_path / "b")
    with pytest.raises(FathomError, match="already exists"):
        import_raw(folder, tmp_path / "b")


@given(st.integers(-(10**12), 10**12), st.lists(st.integers(-500, 500), min_size=1, max_size=20))
def test_the_clocks_offset_is_found_within_its_spread(offset, jitter):
    ks = list(range(len(jitter)))
    here = pl.DataFrame({"k": ks, "ns": [T0 + 10 * MS * k for k in ks]})
    there = pl.DataFrame(
        {"k": ks, "ns": [T0 + 10 * MS * k + offset + j for k, j in zip(ks, jitter, strict=True)]}
    )
    result = traces.shift_of(3, here, there)
    assert result is not None and result.offset_ns == offset + sorted(jitter)[len(jitter) // 2]
    assert all(abs(offset + j - result.offset_ns) <= result.error_ns for j in jitter)
    moved = traces.move(here, [result], "ns")
    assert (moved["ns"] - here["ns"]).unique().to_list() == [result.offset_ns]


@pytest.mark.programs
def test_a_recorded_training_has_windows_with_work_in_them(tmp_path):
    run = launch(tmp_path, "loader.py", "2", "fork", "4", "map")
    store = import_raw(run.folder)
    steps = store.table("steps").filter(phase="timeline").collect()
    ops = store.table("ops").filter(phase="timeline").collect()
    assert len(steps) == 10 and store.manifest.ranks[0].clock_error_ns < 5_000_000
    for row in steps.iter_rows(named=True):
        inside = ops.filter(pl.col("start_ns").is_between(row["mark_ns"], row["end_ns"]), burst=row["burst"])
        assert inside.filter(pl.col("name") == "aten::linear").height == 1
        assert inside.filter(pl.col("name").str.starts_with("Optimizer.step")).height == 1
    rows = store.table("input").collect()
    assert len(rows) == 64 and rows["fetch_ns"].null_count() == 0
    assert set(rows["worker"]) == {0, 1} and store.manifest.ended == "finished"


@pytest.mark.programs
def test_a_killed_program_is_a_sounding_that_says_so(tmp_path):
    run = launch(tmp_path, "endings.py", "kill")
    store = import_raw(run.folder)
    assert store.manifest.ended == "killed"
    assert len(store.table("steps").collect()) == len(run.marks) - 1
