"""Parts of the probe that need no torch: its file, its imports, its plan, its faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from fathom.probe import faults, imports, records
from fathom.probe.hooks.patches import Patches
from fathom.probe.orders import LATE, Job, Places, Schedule
from fathom.probe.plan import ProbePlan
from fathom.probe.runs import Label, MarkRuns

INJECT = Path(records.__file__).parent / "inject"


def test_nothing_is_written_before_there_is_something_to_say(tmp_path):
    file = records.Records(str(tmp_path), lambda: {"t": "process"})
    file.flush()
    assert list(tmp_path.iterdir()) == []
    file.add({"t": "note"})
    file.add({"t": "mark"})
    file.flush()
    (written,) = tmp_path.iterdir()
    assert [json.loads(line)["t"] for line in written.read_text().splitlines()] == ["process", "note", "mark"]


def test_records_of_many_threads_all_arrive(tmp_path):
    file = records.Records(str(tmp_path), lambda: {"t": "process"})

    def say(thread: int) -> None:
        for number in range(500):
            file.add({"t": "x", "thread": thread, "number": number})
            if file.due(number):
                file.flush()

    threads = [threading.Thread(target=say, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    (written,) = tmp_path.iterdir()
    said = [json.loads(line) for line in written.read_text().splitlines()[1:]]
    assert len({(record["thread"], record["number"]) for record in said}) == len(said) == 2000


def test_a_lost_folder_is_one_warning(tmp_path, capfd):
    faults.reset()
    file = records.Records("/proc/no-such-folder", lambda: {"t": "process"})
    for _ in range(3):
        file.add({"t": "note"})
        file.flush()
    file.close()
    assert capfd.readouterr().err.count("fathom:") == 1
    faults.reset()


def test_a_fault_is_reported_once_and_disables_its_part(capfd):
    faults.reset()
    calls = []

    @faults.guarded("a part")
    def broken() -> None:
        calls.append(1)
        raise RuntimeError("as planned")

    broken()
    broken()
    assert len(calls) == 1
    assert (
        capfd.readouterr().err
        == "fathom: a part is off after a fault of the probe (RuntimeError: as planned)\n"
    )
    faults.reset()


def test_undoing_patches_keeps_those_of_others():
    class Base:
        def speak(self) -> str:
            return "base"

    class Child(Base):
        pass

    patches = Patches()
    patches.wrap(Child, "speak", lambda original: lambda self: original(self) + "!")
    assert Child().speak() == "base!" and Base().speak() == "base"
    patches.undo()
    assert "speak" not in vars(Child) and Child().speak() == "base"
    patches.wrap(Base, "speak", lambda original: lambda self: original(self) + "?")
    Base.speak = lambda self: "theirs"  # type: ignore[method-assign]
    patches.undo()
    assert Base().speak() == "theirs"


def test_a_module_is_met_when_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "met_later.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    order = []
    imports.when_imported(
        "met_later", lambda module: order.append(module.VALUE), before=lambda: order.append("before")
    )
    import met_later  # type: ignore[import-not-found]

    imports.when_imported("met_later", lambda module: order.append(module is met_later))
    imports.forget()
    assert order == ["before", 1, True]
    assert not any(type(finder) is imports._Watch for finder in sys.meta_path)


def test_missing_options_keep_their_defaults(tmp_path):
    (tmp_path / "plan.json").write_text(
        '{"steps": null, "settle": "auto", "at": [9, 3], "stop_after": "recorded"}'
    )
    plan = ProbePlan.read(str(tmp_path))
    assert plan == ProbePlan(at=[3, 9], stop_after="recorded")
    assert ProbePlan.read(str(tmp_path / "nowhere")) == ProbePlan()


def test_ranks_of_a_host_share_a_schedule(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    leader = Schedule(str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "1")
    follower = Schedule(str(tmp_path))
    assert leader.lead > 0 > follower.lead and follower.news() == {}
    leader.publish({12: None})
    assert follower.news() == {12: None} and follower.news() == {}
    job = Job("timeline", 3)
    leader.publish({30: job})
    assert follower.news() == {30: job} and leader.news() == {}
    leader.publish({}, resettled=24)  # steps before were unlike later ones, on every rank
    assert follower.news() == {} and follower.resettled == 24
    follower.places.put(40)  # its host runs ahead of its device
    leader.places.put(31)
    assert leader.places.furthest() == 40


def test_the_first_rank_with_steps_leads_if_the_first_rank_has_none(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    ranks = []
    for rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        ranks.append(Schedule(str(tmp_path)))
    server, worker, other = ranks
    worker.places.put(LATE)
    other.places.put(LATE)
    assert not worker.takes_over(LATE - 1) and not other.takes_over(LATE) and not server.takes_over(LATE)
    assert worker.takes_over(LATE) and not worker.takes_over(LATE + 1)
    worker.publish({90: None})
    assert other.news() == {90: None} and worker.news() == {}


def test_a_rank_with_steps_follows_the_first_rank_that_has_some(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    leader = Schedule(str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "1")
    follower = Schedule(str(tmp_path))
    leader.places.put(1)
    assert not follower.takes_over(LATE) and follower.lead < 0


def test_steps_of_an_earlier_run_count_for_no_rank(tmp_path):
    path = str(tmp_path / "places")
    for rank in range(4):
        Places(path, rank, 4).put(900)
    leader, other = Places(path, 0, 2), Places(path, 1, 2)
    assert leader.furthest() == 0
    other.put(7)
    assert leader.furthest() == 7


def test_ranks_that_share_no_file_know_nothing_of_each_other(tmp_path):
    alone = Places(str(tmp_path / "no" / "folder"), 0, 2)
    alone.put(5)
    assert alone.furthest() == 0


def start_python(
    code: str, tmp_path: Path, path: tuple[Path, ...] = (), python: Path = Path(sys.executable)
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "raw").mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "FATHOM_RAW": str(tmp_path / "raw"),
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (INJECT, *path)),
    }
    return subprocess.run(
        [str(python), "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_a_process_without_torch_imports_nothing_for_the_probe(tmp_path):
    heavy = ("fathom", "typing", "json", "importlib")
    code = f"import sys; print(sorted(n for n in sys.modules if n.startswith({heavy})))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert start_python(code, tmp_path).stdout == plain.stdout


def test_fathom_can_be_imported_where_it_is_not_installed(tmp_path):
    bare = Path(sys.base_prefix) / "bin" / "python3"
    code = "import fathom, sys; fathom.step(); print(fathom.__file__); print(sys.path)"
    done = start_python(code, tmp_path, python=bare)
    file, path = done.stdout.splitlines()
    assert Path(file).parent == INJECT.parents[1]
    assert not [entry for entry in eval(path) if entry in (str(INJECT.parents[2]), str(INJECT.parents[1]))]


def test_the_users_sitecustomize_is_the_one_that_python_finds(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(
            f"import sys\nsys.seen = [*getattr(sys, 'seen', []), '{name}']\n"
        )
    code = "import sys; print(sys.seen, sys.modules['sitecustomize'].__file__)"
    done = start_python(code, tmp_path, path=(tmp_path / "first", tmp_path / "second"))
    assert done.stdout.split() == ["['first']", str(tmp_path / "first" / "sitecustomize.py")]


def test_a_sitecustomize_that_fails_fails_as_it_would_have(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    done = start_python("print('on')", tmp_path, path=(tmp_path,))
    assert done.stdout == "on\n" and "theirs" in done.stderr and done.returncode == 0


def test_a_torch_that_cannot_be_imported_fails_as_it_would_have(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = start_python("import torch", tmp_path, path=(tmp_path,))
    assert (
        done.returncode == 1
        and "no torch here" in done.stderr
        and "fathom" not in done.stderr.split("Traceback")[0]
    )


def test_a_torch_of_another_kind_is_one_warning(tmp_path):
    (tmp_path / "torch.py").write_text("x = 1\n")
    done = start_python("import torch; print(torch.x)", tmp_path, path=(tmp_path,))
    assert done.stdout == "1\n" and done.stderr.count("\n") == 1 and done.stderr.startswith("fathom: ")


def test_deferred_marks_continue_the_run_even_after_it_was_written():
    label = Label("optimizer", 1, "clean", 1, "train", None, None, None)
    runs = MarkRuns()
    runs.add(7, 70, label)
    runs.repeat([80])
    assert runs.take()["ns"] == [70, 80]
    runs.repeat([90])
    assert runs.add(10, 100, label) is None
    assert (runs.take() or {})["k"] == 9
