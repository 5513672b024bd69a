"""Real programs, recorded: steps are counted exactly, and the program does not notice."""

from __future__ import annotations

import json

import pytest

from fathom.analysis import by_category
from fathom.probe.hooks.reading import ready
from fathom.probe.plan import ProbePlan
from fathom.sounding import import_raw
from tests.support.paths import SOURCE
from tests.support.probe_programs import launch

pytestmark = pytest.mark.programs
COMPILED = ("module", "method", "inner", "bound", "function", "loop")
of_training = pytest.mark.xdist_group("probe: training")  # one recording serves them all
of_compiled = pytest.mark.xdist_group("probe: compiled")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return launch(tmp_path_factory.mktemp("training"), "train.py", "60", cold=True)


@of_training
def test_a_training_loop_goes_through_all_phases(training):
    run = training
    assert run.status == 0 and run.err == ""
    assert len(run.marks) == 60
    assert {mark["source"] for mark in run.marks} == {"optimizer"}
    assert [mark["k"] for mark in run.marks] == list(range(60))
    assert run.kinds == {"train": 59}
    assert (
        run.phases["timeline"] >= ProbePlan().steps
        and run.phases["attribution"] == 1
        and run.phases["clean"] >= 20
    )
    assert run.of("end")[0]["steps"] == 60


def test_thirty_steps_are_enough_for_a_timeline(tmp_path):
    run = launch(tmp_path, "by_hand.py", "30", plan={"settle": 4})
    assert run.phases["clean"] >= 8 and run.phases["timeline"] >= 4


@of_training
def test_clean_steps_come_with_what_the_kernel_counts(training, tmp_path):
    store = import_raw(training.folder, tmp_path / "train.fathom")
    usage = store.table("usage").collect()
    assert 12 <= usage["steps"].sum() <= training.phases["clean"]
    assert set(usage["phase"]) == {"clean"} and usage["faults"].null_count() == 0
    used = usage["user_ns"] + usage["system_ns"] + usage["ready_ns"].fill_null(0)
    assert (used <= 1.2 * (usage["end_ns"] - usage["start_ns"]) + 20e6).all()  # ticks of up to 10 ms


@of_training
def test_the_program_computes_the_same_and_says_the_same(training, tmp_path):
    plain = launch(tmp_path, "train.py", "60", watched=False)
    assert (plain.out, plain.err, plain.status) == (training.out, training.err, training.status)


@of_training
def test_every_mark_of_a_burst_is_annotated_in_its_trace(training):
    for record, trace in zip(training.of("trace"), training.traces(), strict=True):
        names = [event["name"] for event in trace["traceEvents"] if "fathom.mark#" in event.get("name", "")]
        assert names == [f"fathom.mark#{k}" for k in range(record["k0"], record["k1"] + 1)]


@of_training
def test_only_the_attribution_has_shapes_and_stacks(training):
    for record, trace in zip(training.of("trace"), training.traces(), strict=True):
        deep = any("Input Dims" in event.get("args", {}) for event in trace["traceEvents"])
        stacks = any(event.get("cat") == "python_function" for event in trace["traceEvents"])
        assert (deep, stacks) == ((True, True) if record["phase"] == "attribution" else (False, False))


@of_training
def test_memory_of_a_step_is_known_by_category(training, tmp_path):
    store = import_raw(training.folder, tmp_path / "train.fathom")
    over_step = by_category(store.table("memory").collect(), store.table("ops").collect())
    parameters = 4 * (32 * 64 + 64 + 64 + 1)
    assert set(over_step["parameters"]) == {parameters} and set(over_step["optimizer state"]) == {0}
    assert over_step["gradients"].max() == parameters
    outputs = 4 * 16 * 64  # of the first layer, and of GELU
    assert 2 * outputs <= over_step["activations"].max() <= 4 * outputs
    allocated = store.table("memory").filter(event="alloc", phase="attribution").collect()
    assert "aten::addmm" in set(allocated["op"])


@pytest.mark.parametrize(
    ("workers", "start", "kind", "total"),
    [("2", "fork", "map", 32), ("2", "spawn", "iterable", 32)],
)
def test_every_batch_of_workers_has_its_stages(tmp_path, workers, start, kind, total):
    run = launch(tmp_path, "loader.py", workers, start, "2", kind)
    check_stages(run, total)
    keys = {(record["pid"], record["epoch"], record["nth"]) for record in run.of("batch")}
    theirs = {
        (records[0]["pid"], record["epoch"], record["nth"])
        for records in run.processes[1:]
        for record in records
        if record["t"] == "batch"
    }
    assert keys == theirs and len(keys) == total


def check_stages(run, total):
    assert len(run.marks) == len(run.of("batch")) == total
    made = [r for records in run.processes for r in records if r["t"] == "batch" and r.get("fetch")]
    assert len(made) == total and all(record["collate"] > 0 for record in made)
    assert all(0 <= record["read"] <= record["fetch"] and record["decode"] == 0 for record in made)


@pytest.mark.skipif(
    ready() is None, reason="this system does not tell how long a thread waits for a processor"
)
def test_workers_tell_their_threads_and_how_long_they_wait_for_a_processor(tmp_path):
    run = launch(tmp_path, "loader.py", "2", "forkserver", "1", "threaded")
    made = [r for records in run.processes[1:] for r in records if r["t"] == "batch"]
    assert len(made) == 16 and {(record["worker"], record["threads"]) for record in made} == {(0, 3), (1, 1)}
    assert all(0 <= record["cpu_wait"] <= record["fetch"] + record["collate"] + 10**6 for record in made)


def test_modules_called_in_workers_are_not_steps(tmp_path):
    run = launch(tmp_path, "loader.py", "2", "fork", "2", "module")
    assert len(run.marks) == 32 and {mark["source"] for mark in run.marks} == {"optimizer"}
    assert len(run.processes) == 3
    assert not [record for records in run.processes[1:] for record in records if record["t"] == "mark"]


def test_batches_without_workers_have_stages_and_an_epoch_start_is_a_kind_of_step(tmp_path):
    run = launch(tmp_path, "loader.py", "0", "-", "3", "map")
    check_stages(run, 48)
    assert run.kinds == {"train": 45, "train+epoch start": 2}
    assert {mark["samples"] for mark in run.marks[1:]} == {4}


@pytest.mark.parametrize(("critic_steps", "iterations"), [("1", 40), ("5", 20)])
def test_with_two_optimizers_the_rarer_one_is_the_clock(tmp_path, critic_steps, iterations):
    run = launch(tmp_path, "gan.py", str(iterations), critic_steps)
    assert len(run.marks) == iterations


def test_an_optimizer_per_parameter_gives_one_mark_per_iteration(tmp_path):
    run = launch(tmp_path, "in_backward.py", "60")
    assert run.status == 0 and len(run.marks) == 60
    assert run.phases["timeline"] >= ProbePlan().steps


def test_a_step_that_the_scaler_skips_is_a_step(tmp_path):
    assert len(launch(tmp_path, "scaler.py", "40").marks) == 40


def test_batches_between_optimizer_steps_are_micro_steps(tmp_path):
    run = launch(tmp_path, "accumulate.py", "40", "3")
    assert len(run.marks) == 40
    inner = [record["k"] for record in run.of("micro") if record["k"] >= 0]
    assert inner == [k for k in range(39) for _ in range(3)]
    assert {mark["samples"] for mark in run.marks[1:]} == {6}


def test_evaluation_between_steps_is_distinguished(tmp_path):
    run = launch(tmp_path, "evaluate.py", "4")
    assert len(run.marks) == 80
    assert run.kinds == {"train": 76, "train+evaluation": 3}


def test_calls_without_gradients_between_steps_are_evaluation(tmp_path):
    run = launch(tmp_path, "epochs.py", "4")
    assert run.kinds == {"train": 80, "evaluation": 19}  # the last call ends no step


def test_samples_are_unknown_if_the_first_dimension_may_be_time(tmp_path):
    run = launch(tmp_path, "recurrent.py", "30")
    assert run.kinds == {"train": 29}
    assert {mark["samples"] for mark in run.marks} == {None}


def compilations(folder, watched):
    """Dynamo's counts and the probe's records of each way to compile, by name."""
    run = launch(folder, "compiled.py", ",".join(COMPILED), "40", watched=watched, compiles=True)
    records = {records[0]["pid"]: records for records in run.processes}
    lines = [json.loads(line) for line in run.out.splitlines()]
    return {how: (counts, records.get(pid)) for how, (pid, counts) in zip(COMPILED, lines, strict=True)}


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    return compilations(tmp_path_factory.mktemp("plain"), watched=False)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return compilations(tmp_path_factory.mktemp("watched"), watched=True)


@of_compiled
@pytest.mark.parametrize("how", COMPILED)
def test_compiled_code_is_counted_and_compiles_as_before(unwatched, watched, how):
    """Of a loop a clock of graphs that only the watch had made would stop with it."""
    counts, records = watched[how]
    assert counts == unwatched[how][0]
    assert counts["stats"].get("unique_graphs") == (None if how == "loop" else 1)
    marks = [record for record in records if record["t"] == "mark"]
    assert len(marks) == 40 and {mark["source"] for mark in marks} == {"forward"}
    assert sum(record["t"] == "process" for record in records) == 1  # the parent's session ended at the fork
    assert how == "loop" or any(r["t"] == "wait" and r["cause"] == "compilation" for r in records)


@pytest.mark.parametrize("how", ["reentrant", "hooks"])
def test_recomputed_layers_are_not_steps(tmp_path, how):
    run = launch(tmp_path, "recompute.py", how, "40")
    assert run.status == 0 and len(run.marks) == 40
    assert {mark["source"] for mark in run.marks} == {"forward"}


@pytest.mark.parametrize("old", [(), ("old",)])
@pytest.mark.parametrize("own", [1, 2, 3, 7])
def test_bursts_of_steps_that_several_threads_open_end_well(tmp_path, own, old):
    """Torch ends the program where a profiler is ended by a thread that did not begin it."""
    turns = 160 // (own + 1)
    run = launch(tmp_path, "serving.py", str(turns), str(own), *old)
    assert (run.status, run.err) == (0, "")
    assert {note["what"] for note in run.of("note")} <= {"interrupted"}
    assert len(run.marks) == turns * (own + 1) and (old or run.phases["timeline"] >= 4)


def test_steps_of_a_program_that_keeps_forking_become_clean(tmp_path):
    run = launch(tmp_path, "restarting.py", "60", "4")
    assert run.status == 0 and len(run.marks) == 240
    said = [note["text"] for note in run.of("note") if note["what"] == "interrupted"]
    assert sum("Fathom stopped trying" in text for text in said) == 1
    first = [mark["k"] % 4 for mark in run.marks if mark["phase"] == "clean"]
    assert len(first) > 100 and first.count(1) > 20, "the steps that restart workers are among them"


def test_generation_knows_prefill_from_decode(tmp_path):
    run = launch(tmp_path, "generate.py", "6", "9")
    assert len(run.marks) == 54
    assert run.kinds == {"prefill": 6, "decode": 47}


@pytest.mark.parametrize("start", ["12", "19", "22", "23"])
def test_the_programs_own_profiler_goes_first(tmp_path, start):
    run = launch(tmp_path, "own_profiler.py", "120", start, "60")
    assert "seen True" in run.out and run.status == 0
    assert len(run.marks) == 120 and run.phases["timeline"] >= ProbePlan().steps
    assert any(record["what"] == "own-profiler" for record in run.of("note"))
    theirs = range(int(start) + 1, 60)
    assert not [mark for mark in run.marks if mark["k"] in theirs and mark["phase"] in ("clean", "timeline")]


@pytest.mark.parametrize(
    ("how", "status", "steps"), [("crash", 1, 50), ("exit", 3, 50), ("_exit", 4, 50), ("interrupt", -2, 50)]
)
def test_however_it_ends_its_steps_are_there(tmp_path, how, status, steps):
    run = launch(tmp_path, "endings.py", how)
    assert run.status == status
    assert steps <= len(run.marks) <= steps + 1 and run.of("end")


def test_flushed_records_survive_a_kill(tmp_path):
    run = launch(tmp_path, "endings.py", "kill")
    assert run.status == -9
    assert run.of("mark") and not run.of("end")


def test_parent_and_fork_are_recorded_each(tmp_path):
    run = launch(tmp_path, "endings.py", "fork")
    assert run.status == 0
    assert sorted(sum(r["t"] == "mark" for r in records) for records in run.processes) == [20, 70]


def test_a_process_without_steps_says_nothing(tmp_path):
    run = launch(tmp_path, "no_steps.py")
    assert run.status == 0 and run.processes == []


def test_the_hosts_window_without_steps(tmp_path):
    run = launch(tmp_path, "by_hand.py", "0", "1.5", plan={"step_on": "none"})  # the window opens after 0.5 s
    assert run.status == 0 and run.err == ""
    assert [mark["source"] for mark in run.marks] == ["host", "host"]
    names = {event.get("name") for event in run.traces()[0]["traceEvents"]}
    assert {"fathom.mark#0", "fathom.mark#1", "aten::linear"} <= names


def test_a_program_may_mark_its_steps(tmp_path):
    run = launch(tmp_path, "explicit.py", "60")
    assert len(run.marks) == 60 and run.kinds == {"train": 59}
    assert {(mark["samples"], mark["tokens"]) for mark in run.marks} == {(64, 640)}
    timeline = run.traces()[0]["traceEvents"]
    regions = {event["cat"] for event in timeline if event.get("name") == "product"}
    assert regions == {"user_annotation"}  # as an op, Python's time in it would be the framework's work


def test_step_and_region_are_harmless_where_nothing_records(tmp_path):
    run = launch(tmp_path, "explicit.py", "5", watched=False, PYTHONPATH=str(SOURCE))
    assert run.status == 0 and run.err == "" and run.processes == []


def test_a_fault_of_the_probe_is_one_line_and_the_program_runs_on(tmp_path):
    run = launch(tmp_path, "sabotage.py")
    assert run.status == 0 and run.out.startswith("loss ")
    assert run.err.count("\n") == 1 and run.err.startswith("fathom: profiling is off")
    assert len(run.marks) == 60 and run.phases["timeline"] == 0
    assert [record["what"] for record in run.of("note")] == ["fault"]


def test_surface_records_no_timeline(tmp_path):
    run = launch(tmp_path, "by_hand.py", "60", plan={"depth": "surface"})
    assert set(run.phases) == {"settle", "clean"} and not run.of("trace")


def test_a_timeline_begins_where_it_is_asked_for(tmp_path):
    run = launch(tmp_path, "by_hand.py", "120", plan={"at": [30, 70], "steps": 3})
    begun = [record["k0"] for record in run.of("trace") if record["phase"] == "timeline"]
    assert any(30 <= k <= 33 for k in begun) and any(70 <= k <= 73 for k in begun)
    assert not any(k < 30 for k in begun)


def test_a_number_of_steps_is_enough(tmp_path):
    run = launch(tmp_path, "by_hand.py", "60", plan={"stop_after": 20})
    assert int((run.raw / "stop").read_text()) == 20


def test_another_sitecustomize_still_runs(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys\nsys.stderr.write('theirs\\n')\n")
    run = launch(tmp_path, "by_hand.py", "30", cold=True, PYTHONPATH=str(tmp_path / "site"))
    assert run.err == "theirs\n" and len(run.marks) == 30


def test_a_trigger_asks_for_one_more_timeline(tmp_path):
    run = launch(tmp_path, "triggered.py", str(tmp_path / "raw"), plan={"settle": 4})
    late = [record for record in run.of("trace") if record["k0"] >= 80]
    assert [record["phase"] for record in late] == ["timeline"]
    assert not (run.raw / "trigger").exists()


def test_a_program_that_becomes_quicker_is_recorded_again(tmp_path):
    run = launch(tmp_path, "quicker.py")
    settled = max(record["k"] for record in run.of("resettled"))
    assert settled >= 60
    assert "timeline" in [record["phase"] for record in run.of("trace") if record["k0"] >= settled]


def test_a_process_may_record_itself_for_a_while(tmp_path):
    path = str(SOURCE)
    run = launch(tmp_path, "in_process.py", str(tmp_path / "raw"), watched=False, PYTHONPATH=path)
    assert run.out.split() == ["True", "False"]
    assert len(run.marks) == 60 and run.phases["timeline"] >= ProbePlan().steps
    assert run.of("end")[0]["reason"] == "stopped"


def test_ranks_of_a_host_keep_one_schedule(tmp_path):
    run = launch(tmp_path, "ranks.py", "80", ranks=2)
    assert run.status == 0, run.err
    first, second = (
        [(r["k"], len(r["ns"]), r["phase"]) for r in records if r["t"] == "marks"] for records in run.runs()
    )
    assert sorted(r[0]["rank"] for r in run.processes) == [0, 1]
    assert _stretches(first) == _stretches(second)
    assert {phase for _, phase in _stretches(first)} >= {"clean", "timeline", "attribution"}


def _stretches(runs):
    """(step, phase) wherever the phase changes."""
    steps = [(k + i, phase) for k, count, phase in runs for i in range(count)]
    return [item for before, item in zip([(None, None), *steps], steps, strict=False) if before[1] != item[1]]
