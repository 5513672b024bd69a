"""The suite of faults: labels that hold together, programs that run, recordings that are kept."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
import tarfile
import threading
from collections import Counter, defaultdict

import pytest

from fathom.diagnosis.kinds.catalogue import OF_RULES
from fathom.sounding import open_store
from faults import finish, kept, parallel, record
from faults.labels import (
    CATALOGUE,
    GROUPS,
    HERE,
    PROGRAMS,
    Fault,
    Program,
    builders,
    kinds,
    programs,
    read,
    timelines,
)
from tests.support.running import environment
from tests.support.small_sounding import make

ROOT = HERE.parent
BOUNDS = {"input", "host", "launch", "communication", "copy", "memory", "compute"}  # of the verdict
EVERY = (*programs(), *builders(), *timelines())
FAULTY = [program for program in EVERY if program.fault.kind]
SAMPLE = (
    *("input/few_workers", "input/collate_lists", "host/norm_of_each_gradient", "host/routed_experts"),
    *(
        "host/metrics_in_python",
        "kernels/math_attention",
        "kernels/loss_by_hand",
        "kernels/recomputed_layers",
    ),
    *("numbers/odd_vocabulary", "two/attention_and_norm", "tuned/wide_training"),
)


# kinds


def test_every_kind_is_described_in_full():
    assert len(kinds()) >= 45
    for name, kind in kinds().items():
        said = {
            "id",
            "group",
            "title",
            "bound",
            "action",
            "mechanism",
            "shows",
            "remedy",
            "references",
            "tips",
        }
        assert set(kind) - {"no_technique", "trial", "account", *OF_RULES} == said, name
        assert kind["group"] in GROUPS and name.startswith(kind["group"] + "-")
        assert name == name.lower() and " " not in name
        assert all(kind[key].strip() for key in ("title", "action", "mechanism", "shows", "remedy"))
        assert kind["bound"] and set(kind["bound"]) <= BOUNDS, name
        assert not kind["action"].endswith("."), name
        assert kind["references"] and all(link.startswith("https://") for link in kind["references"])


def test_no_id_or_title_is_taken_twice():
    assert sum(file.read_text().count("\n- id: ") for file in CATALOGUE) == len(kinds())
    assert len({kind["title"] for kind in kinds().values()}) == len(kinds())


def test_every_kind_has_a_program_or_synthetic_telemetry():
    unexplained = {"communication-straggler"}  # a late rank whose ledger shows no cause: nothing plants that
    assert set(kinds()) - unexplained == {program.fault.kind for program in FAULTY}


def test_the_suite_is_as_large_as_promised():
    count = Counter(program.group == "tuned" for program in programs())
    assert count[False] >= 75 and count[True] == 10
    assert sum(len(program.fault.expected) >= 2 for program in programs()) >= 5


# labels


@pytest.mark.parametrize("program", FAULTY, ids=lambda program: program.id)
def test_labels_of_a_fault_are_consistent(program: Program):
    fault = program.fault
    named = [*fault.expected, *fault.forbidden, *fault.allowed, *fault.parts]
    assert set(named) <= set(kinds()) and len(named) == len(set(named))
    assert fault.kind not in fault.forbidden + fault.allowed
    assert fault.forbidden and fault.why, "give `forbidden` findings and `why`"
    assert fault.expected[:1] == [fault.kind] or fault.known_gap
    assert fault.severity == sorted(set(fault.severity)) and set(fault.severity) <= {1, 2, 3}
    assert len(fault.share) == len(fault.severity), "`share` has one number per severity"
    assert fault.share == sorted(fault.share) and all(0 <= part < 1 for part in fault.share)
    assert min(fault.share) >= 0.05 or fault.known_gap, "a fault costs 5 % of the step or more"
    assert set(fault.needs) <= {"gpu", "gpus", "ranks", "compile", "cupy", "cores", "steps"}


def test_well_tuned_programs_expect_nothing():
    for program in programs():
        if program.group == "tuned":
            fault = program.fault
            assert (fault.kind, fault.expected, fault.forbidden) == (None, [], [])
            assert set(fault.allowed) <= set(kinds()) and fault.why
            assert program.forms == ("mended",)


def test_a_file_without_labels_is_refused(tmp_path):
    (tmp_path / "bare.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="FAULT"):
        read(tmp_path / "bare.py")


# programs


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.id)
def test_a_program_is_ordinary_pytorch(program: Program):
    source = (PROGRAMS / program.group / f"{program.name}.py").read_text()
    tree = ast.parse(source)
    compile(tree, program.id, "exec")
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name.partition(".")[0] == "fathom" for name in imported)
    assert {"faults.common"} <= imported, "import what is needed from faults.common"
    said = ast.get_docstring(tree) or ""
    paragraphs = 2 if program.fault.kind else 1
    assert len(said.split("\n\n")) == paragraphs, "the docstring: the fault, then what the user believes"
    assert ("options.faulty" in source) == bool(program.fault.kind), "only faults have options.faulty"
    scaled = program.fault.severity == [1, 2, 3]
    assert ("options.by(" in source) == scaled, "options.by(mild, medium, severe) scales three severities"


@pytest.fixture(scope="module")
def losses() -> dict[str, dict[str, float]]:
    """Of a few programs, by id and form, after three steps on a processor."""
    if not importlib.util.find_spec("torch"):
        pytest.skip("needs torch")
    done = subprocess.run(
        [sys.executable, "-m", "faults.smoke", *SAMPLE],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    by_name: dict[str, dict[str, float]] = defaultdict(dict)
    for line in done.stdout.splitlines():
        document = json.loads(line)
        by_name[document["id"]][document["form"]] = document["loss"]
    return by_name


@pytest.mark.programs
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize("program", [p for p in programs() if p.id in SAMPLE], ids=lambda p: p.id)
def test_both_forms_run_on_a_processor_and_agree(program: Program, losses):
    said = losses[program.id]
    assert set(said) == set(program.forms)
    assert all(math.isfinite(loss) for loss in said.values())
    if program.fault.agree is not None:
        assert said["faulty"] == pytest.approx(said["mended"], rel=program.fault.agree)


# synthetic telemetry


@pytest.mark.parametrize("builder", builders(), ids=lambda builder: builder.name)
def test_a_device_that_is_unwell_is_as_slow_as_its_label_says(builder: Program, tmp_path):
    build = importlib.import_module(builder.module).build
    for severity, part in zip(builder.fault.severity, builder.fault.share, strict=True):
        well, unwell = build("mended", severity), build("faulty", severity)
        assert 1 - well.step_ms / unwell.step_ms == pytest.approx(part, abs=0.01)
        assert unwell.telemetry() != well.telemetry() or unwell.machine() != well.machine()
    store = unwell.write(tmp_path / "device.fathom")
    rows = open_store(store.path).verify().table("telemetry").collect()
    assert rows["energy_j"].is_sorted() and rows["time_ns"].is_sorted() and len(rows) > 20
    steps = store.table("steps").collect()
    lengths = (steps["end_ns"] - steps["mark_ns"]).unique().to_list()
    assert lengths == [round(unwell.step_ms * 1e6)]


# recording


def options(folder, **more) -> argparse.Namespace:
    said = {"folder": folder, "only": None, "group": None, "form": ("faulty", "mended"), "severity": [2]}
    said |= {"steps": 5, "windows": 2, "minutes": 9, "tar": None, "small": True, "gpus": None, "at_once": 1}
    said |= {"missing": False, "kept": folder / "kept"}
    return argparse.Namespace(**said | more)


def test_both_forms_are_recorded_side_by_side(tmp_path):
    runs = list(record.chosen(options(tmp_path, severity=[1, 2], only=["metrics_in_python"])))
    assert [(run.form, run.severity) for run in runs] == [
        *[("faulty", 1), ("mended", 1), ("faulty", 2), ("mended", 2)]
    ]
    assert {run.program.group for run in record.chosen(options(tmp_path, group=["two"]))} == {"two"}
    assert len({run.name for run in record.chosen(options(tmp_path))}) == sum(
        len(program.forms) for program in programs() if 2 in program.fault.severity
    )


def test_a_run_stopped_early_leaves_an_even_sample(tmp_path):
    runs = list(record.chosen(options(tmp_path, severity=[1, 3])))
    counts = Counter(run.program.group for run in runs)
    assert len({run.name for run in runs}) == len(runs) and len(counts) >= 5
    for part in (0.25, 0.5, 0.75):
        here = runs[: int(part * len(runs))]
        for group, count in Counter(run.program.group for run in here).items():
            assert count == pytest.approx(part * counts[group], abs=3)
        severities = Counter(run.severity for run in here)
        assert severities[1] == pytest.approx(severities[3], rel=0.3)
    for item, other in itertools.pairwise(runs):
        if item.form == "faulty":
            assert other.name == item.name.replace("faulty", "mended")


def test_what_is_kept_can_be_left_out(tmp_path):
    both = options(tmp_path, only=["host/metrics_in_python"], missing=True)
    assert len(list(record.chosen(both))) == 2  # nothing is kept
    both.kept.mkdir()
    (both.kept / "index.json").write_text('{"host.metrics_in_python.faulty.2": {}}')
    assert [run.form for run in record.chosen(both)] == ["mended"]


COUNTED = Program("kernels", "mine", Fault(kind="k", needs={"gpu": True, "cupy": True}))


@pytest.fixture
def target(monkeypatch):
    """A machine with a GPU, as far as `record` asks; answers and what was asked of it, in order."""
    asked: list[str] = []
    answers = {"known": 1, "measure": 0, "run": 0, "samples": b"x", "log": "fathom: a reason\n"}

    def execute(command, log, patience_s=0.0):
        what = next((word for word in ("measure", "run") if word in command), "known")
        asked.append(what)
        log.write_text(answers["log"] + "fathom: raw records are in x\n")
        if what == "run":
            (log.parent / record.TIMES).write_text(json.dumps({"mean_ms": 1.0}))
            raw = log.parent / record.RAW / "raw"
            raw.mkdir(parents=True)
            (raw / "samples-1-1.bin").write_bytes(answers["samples"])
        return answers[what]

    monkeypatch.setattr(record, "execute", execute)
    monkeypatch.setattr(record, "unmet", lambda *_: "")
    return asked, answers


def test_counters_are_qualified_once_before_runs_that_need_them(tmp_path, target):
    asked, answers = target
    some = options(tmp_path, severity=[2, 3])
    assert record.record(some, lambda: [COUNTED]) == 0
    assert asked == ["known", "measure", *["run"] * 4]
    asked.clear()
    assert record.record(some, lambda: [COUNTED]) == 0 and asked == []  # all is there
    answers["known"] = 0
    assert record.record(options(tmp_path / "more"), lambda: [COUNTED]) == 0
    assert asked == ["known", "run", "run"]


def test_no_counters_are_qualified_for_runs_without_them_or_that_cannot_run(tmp_path, target, monkeypatch):
    asked, _ = target
    plain = Program("host", "mine", Fault(kind="k"))
    assert record.record(options(tmp_path), lambda: [plain]) == 0 and asked == ["run", "run"]
    asked.clear()
    monkeypatch.setattr(record, "unmet", lambda *_: "no GPU")
    assert record.record(options(tmp_path), lambda: [COUNTED]) == 0 and asked == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"samples": b""}, "no counters in it, fathom: a reason"),
        ({"run": 125}, "status 125, fathom: a reason"),
        ({"run": -14}, "its turn of 75 s"),
        ({"measure": 1}, "no counters: status 1, fathom: a reason"),
    ],
)
def test_a_recording_that_lacks_its_counters_has_failed_and_says_why(tmp_path, target, capsys, answer, words):
    target[1].update(answer)
    bad = record.record(options(tmp_path), lambda: [COUNTED])
    out = capsys.readouterr().out
    assert words in out and bad == ("measure" not in answer)
    assert bool(list(tmp_path.glob("*.tar.xz"))) != bool(bad)


def test_what_ended_well_is_not_recorded_again(tmp_path, monkeypatch, capsys):
    started = []

    def execute(command, log, patience_s):
        started.append(command)
        folder = log.parent
        if "mended" in command:
            return 3
        (folder / record.TIMES).write_text(json.dumps({"mean_ms": 1.0}))
        return 0

    monkeypatch.setattr(record, "execute", execute)
    some = options(tmp_path / "out", only=["host/metrics_in_python"], tar=tmp_path / "all.tar")
    assert record.record(some) == 1 and len(started) == 2
    assert "status 3" in capsys.readouterr().out
    assert record.record(some) == 1 and len(started) == 3  # the one that failed
    assert [file.name for file in finish.runs([tmp_path / "all.tar"], tmp_path)] == [
        "host.metrics_in_python.faulty.2.tar.xz"
    ]
    late = options(tmp_path / "later", only=["host/metrics_in_python"], minutes=-1)
    assert record.record(late) == 1 and len(started) == 3
    assert "2 left" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("needs", "small", "reason"),
    [
        ({"cores": 1 << 20}, False, "cores"),
        ({"cores": 1 << 20}, True, ""),
        ({"cupy": True}, True, "cupy"),
        ({"gpu": True}, True, ""),
        ({"gpus": 99}, False, "99 GPUs"),
        ({"gpus": 99}, True, ""),
        ({}, False, ""),
    ],
)
def test_programs_that_cannot_run_here_are_left_out_with_the_reason(needs, small, reason):
    said = record.unmet(Program("x", "y", Fault(kind=None, needs=needs)), small)
    assert reason in said and bool(said) == bool(reason)


def test_runs_are_spread_over_gpus_and_cores_with_both_forms_on_one(tmp_path, monkeypatch, capfd):
    """A real child's view of its place."""
    child = (
        "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], *sorted(os.sched_getaffinity(0)), flush=True)"
    )
    execute, meet = record.execute, threading.Barrier(2, timeout=60)

    def seen(command, log, patience_s):
        if "faulty" in command:
            meet.wait()  # passes only where two run at once
        status = execute([sys.executable, "-c", child], log)
        (log.parent / record.TIMES).write_text(json.dumps({"mean_ms": 1.0}))
        return status

    monkeypatch.setattr(record, "execute", seen)
    before = os.sched_getaffinity(0)
    some = options(tmp_path, only=["metrics_in_python", "odd_vocabulary"], gpus=["4", "GPU-5"])
    assert record.record(some) == 0 and os.sched_getaffinity(0) == before
    places = {}
    for archive in tmp_path.glob("*.tar.xz"):
        with tarfile.open(archive) as tar:
            name = archive.name.removesuffix(".tar.xz")
            places[name] = tar.extractfile(f"{name}/{record.LOG}").read().decode().split()
    assert len(places) == 4 and {gpu for gpu, *_ in places.values()} == {"4", "GPU-5"}
    for name, result in places.items():
        assert result == places[name.replace("mended", "faulty")]
    item, other = {tuple(cores) for _, *cores in places.values()} if len(before) > 1 else ((), ())
    assert not set(item) & set(other) and {int(core) for core in (*item, *other)} <= before
    lines = capfd.readouterr().out.splitlines()
    assert sum(line.endswith((" on GPU 4", " on GPU GPU-5")) for line in lines) == 4 and len(lines) == 5


def test_runs_of_one_gpu_work_one_after_another(tmp_path):
    """Three at once on one GPU: all start at the same time, and no two are between `in` and `out`."""
    child = f"""
import os, time
from faults import parallel
with parallel.turn():
    said = open({str(tmp_path / "said")!r}, "a", buffering=1)
    said.write("in\\n")
    time.sleep(0.2)
    said.write("out\\n")
"""
    meet = threading.Barrier(3, timeout=60)

    def work(number):
        meet.wait()
        return record.execute([sys.executable, "-c", child], tmp_path / f"{number}.txt")

    assert parallel.side_by_side(range(3), lambda number: number, work, ["0"], at_once=3) == 0
    assert (tmp_path / "said").read_text().split() == ["in", "out"] * 3


@pytest.mark.programs
def test_what_optimizers_import_is_imported_before_the_turn(tmp_path):
    """A real program, whose turn is watched."""
    if not importlib.util.find_spec("torch"):
        pytest.skip("needs torch")
    child = """
import runpy, sys
from contextlib import contextmanager
from faults import parallel
@contextmanager
def turn():
    print("torch._dynamo" in sys.modules)
    yield
parallel.turn = turn
sys.argv = ["x", "--device", "cpu", "--small", "--steps", "1"]
runpy.run_module("faults.programs.numbers.head_size", run_name="__main__", alter_sys=True)
"""
    seen = environment(**{parallel.TURN: str(tmp_path / "turn")})
    done = subprocess.run(
        [sys.executable, "-c", child], cwd=ROOT, env=seen, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "True"


def test_cores_are_divided_with_siblings_on_one_side(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(parallel, "CPU", tmp_path)
    assert parallel.shares(3) == [{0, 1}, {2, 3}, {4, 5}]
    assert parallel.shares(9) == [set(range(8))] * 9
    for cpu in range(8):  # four cores, the siblings 4 apart
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "physical_package_id").write_text("0\n")
        (tmp_path / f"cpu{cpu}" / "topology" / "core_id").write_text(f"{cpu % 4}\n")
    assert parallel.shares(2) == [{0, 4, 1, 5}, {2, 6, 3, 7}]


@pytest.mark.parametrize("words", ["", "0,", "0,0"])
def test_a_list_of_gpus_names_each_once(words):
    assert record.gpus("0, 3") == ["0", "3"]
    with pytest.raises(argparse.ArgumentTypeError, match="different GPUs"):
        record.gpus(words)


def test_a_damaged_record_does_not_stop_the_others(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "host.a.faulty.2.tar.xz").write_bytes(b"no archive")
    with tarfile.open(tmp_path / "raw" / "host.b.faulty.2.tar.xz", "w:xz"):
        pass
    assert finish.finish([tmp_path / "raw"], tmp_path / "kept") == 1
    assert "2 failed" in capsys.readouterr().out
    assert json.loads((tmp_path / "kept" / "index.json").read_text()) == {}


def test_soundings_are_kept_in_one_archive_and_taken_one_by_one(tmp_path):
    names = ["host.a.faulty.2", "host.b.faulty.2", "host.a.faulty.3"]
    stores = [make(tmp_path / name) for name in names]
    before = stores[0].table("kernels").collect()
    finish.plain(stores[0].path)
    folder = tmp_path / "kept"
    folder.mkdir()
    kept.keep(folder, [store.path for store in stores[1:]])
    kept.keep(folder, [stores[0].path])
    assert [archive.name for archive in kept.archives(folder)] == ["host.2.tar.xz", "host.3.tar.xz"]
    with kept.unpacked(folder / "host.2.tar.xz") as soundings:
        assert [sounding.name for sounding in soundings] == names[:2]
    bytes_before = (folder / "host.2.tar.xz").read_bytes()
    kept.keep(folder, [stores[0].path])
    assert (folder / "host.2.tar.xz").read_bytes() == bytes_before
    taken = open_store(kept.take(folder, names[0], tmp_path / "taken")).verify()
    assert taken.table("kernels").collect().equals(before)
    with pytest.raises(FileNotFoundError):
        kept.take(folder, "host.c.faulty.2", tmp_path / "taken")
