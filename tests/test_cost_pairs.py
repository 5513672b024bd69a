"""Pairs of the cost benchmark side by side: one a GPU takes turns, all are done, a failure ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import cost
import cost_pairs

BENCHMARKS = Path(cost.__file__).parent
PATIENCE_S = 30.0

# The benchmark itself, on a program that stands in for the ones measured; cores are told, not used.
DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv.pop(1))
import cost, cost_pairs, launcher
launcher.PROGRAMS = Path(sys.argv.pop(1))
launcher.under_fathom = lambda command, folder, options: [*command, "--recorded", str(folder)]
cost_pairs.pinned = lambda command, cores: ["env", f"CORES={cores}", *command]
cost.main()
"""

# It waits for the first SIGCONT: what comes after that it does in its turns.
PROGRAM = """
import json, os, signal, subprocess, sys, time
from pathlib import Path

times, diary = Path(sys.argv[sys.argv.index("--times") + 1]), Path(os.environ["DIARY"])
gpu, side, run = os.environ.get("CUDA_VISIBLE_DEVICES"), times.stem, times.parent.name

def tell(what):
    line = dict(what=what, gpu=gpu, side=side, run=run, cores=os.environ["CORES"], pid=os.getpid())
    with diary.open("a") as file:
        file.write(json.dumps(line | {"at": time.monotonic_ns()}) + "\\n")

def told(what):
    return [line for line in map(json.loads, diary.read_text().splitlines()) if line["what"] == what]

def wait(for_it):
    until = time.monotonic() + 20
    while not for_it():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.005)

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
tell("start")
BEFORE
tell("begun")
Path(os.environ["BEGUN"]).touch()  # from here on it may be stopped
signal.sigwait({signal.SIGCONT})
tell("turn")
MEANWHILE
time.sleep(0.03)
tell("over")
if "--recorded" in sys.argv:
    raw = Path(sys.argv[sys.argv.index("--recorded") + 1]) / "raw"
    raw.mkdir(parents=True)
    marks = {"t": "marks", "k": 0, "ns": [0] * 100, "phase": "clean"}
    (raw / "proc-1.jsonl").write_text(json.dumps(marks))
times.write_text(json.dumps({"steps_s": [0.002 if "--recorded" in sys.argv else 0.001] * 100}))
AFTER
tell("end")
"""


class Bench:
    """`cost.py pairs` on a program made up of lines at three places."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.diary, self.out = folder, folder / "diary", folder / "out"
        (folder / "driver.py").write_text(DRIVER)

    def start(self, *words: str, before: str = "", meanwhile: str = "", after: str = "") -> subprocess.Popen:
        program = PROGRAM.replace("BEFORE", before).replace("MEANWHILE", meanwhile).replace("AFTER", after)
        (self.folder / "launch_bound.py").write_text(program)
        driver = [sys.executable, str(self.folder / "driver.py"), str(BENCHMARKS), str(self.folder)]
        environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        return subprocess.Popen(
            [*driver, "pairs", "launch_bound", *words, "--out", str(self.out)],
            env={**environment, "DIARY": str(self.diary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **lines: str) -> tuple[int, str, str]:
        """Status, output and errors."""
        process = self.start(*words, **lines)
        out, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, errors

    def told(self, what: str) -> list[dict[str, Any]]:
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [line for line in map(json.loads, lines) if line["what"] == what]

    def rows(self) -> list[dict[str, Any]]:
        return cost.lines(self.out / "pairs.jsonl")

    def left(self) -> list[dict[str, Any]]:
        """Processes that still run of those that were told of."""
        found = [line for what in ("start", "child") for line in self.told(what)]
        return [line for line in found if _runs(line["pid"])]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(holds: Callable[[], bool]) -> None:
    last = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < last
        time.sleep(0.01)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for line in bench.left():  # where a test failed
        os.kill(line["pid"], signal.SIGKILL)


THREE = ("--cores", "0", "1", "2")


def spans(bench: Bench) -> dict[str, list[tuple[int, int]]]:
    """For each GPU when its pairs began to take turns and when their last step was over."""
    found: dict[str, list[tuple[int, int]]] = {}
    turns, over = (
        sorted(bench.told(what), key=lambda line: (line["run"], line["at"])) for what in ("turn", "over")
    )
    for k in range(0, len(turns), 2):  # the pairs of one place follow each other
        first, last = turns[k : k + 2], over[k : k + 2]
        assert (
            {line["side"] for line in first} == {line["side"] for line in last} == {"untouched", "recorded"}
        )
        assert len({(line["run"], line["gpu"], line["cores"]) for line in first + last}) == 1
        found.setdefault(first[0]["gpu"], []).append((first[0]["at"], last[1]["at"]))
    return found


def test_one_pair_takes_turns_while_the_others_start_and_all_are_done(bench: Bench) -> None:
    waits = "wait(lambda: len(told('begun')) >= 6)"
    status, out, _ = bench.run(*THREE, "--pairs", "7", meanwhile=waits)
    assert status == 0
    assert sorted(row["pair"] for row in bench.rows()) == list(range(7))
    assert out == (bench.out / "pairs.jsonl").read_text()
    assert {(row["ratio"], row["steps"]) for row in bench.rows()} == {(2.0, 40)}
    assert {row["cores"] for row in bench.rows()} == {"0", "1", "2"}
    (on_one,) = spans(bench).values()
    on_one.sort()
    assert len(on_one) == 7
    assert all(end < begin for (_, end), (begin, _) in pairwise(on_one))


def test_pairs_end_while_others_take_their_turns(bench: Bench) -> None:
    waits = "wait(lambda: {line['run'] for line in told('over')} == {'run-0', 'run-1'})"
    status, _, errors = bench.run("--cores", "0", "1", "--pairs", "2", after=waits)
    assert (status, errors) == (0, "")
    assert len(bench.told("end")) == 4


def test_each_gpu_has_a_pair_at_its_turns(bench: Bench) -> None:
    waits = "wait(lambda: {line['gpu'] for line in told('turn')} == {'4', '7'})"
    status, _, _ = bench.run("--cores", "0", "1", "2", "3", "--gpus", "4,7", "--pairs", "8", meanwhile=waits)
    assert status == 0
    assert {(row["cores"], row["gpu"]) for row in bench.rows()} <= {
        ("0", "4"),
        ("1", "7"),
        ("2", "4"),
        ("3", "7"),
    }
    found = spans(bench)
    assert set(found) == {"4", "7"} and sum(map(len, found.values())) == 8
    for on_one in map(sorted, found.values()):
        assert all(end < begin for (_, end), (begin, _) in pairwise(on_one))


def test_one_pair_at_a_time_unless_asked_and_either_begins_by_turns(bench: Bench) -> None:
    assert bench.run("--pairs", "2")[0] == 0
    assert [row["pair"] for row in bench.rows()] == [0, 1]
    assert not {"cores", "gpu"} & set(bench.rows()[0])
    assert [line["run"] for line in bench.told("start")] == ["run"] * 4
    assert [line["side"] for line in bench.told("turn")] == ["untouched", "recorded", "recorded", "untouched"]
    first, second = (max(line["at"] for line in bench.told("end")[:2]), bench.told("start")[2]["at"])
    assert first < second


CHILD = """
child = subprocess.Popen(["sleep", "60"])
with diary.open("a") as file:
    file.write(json.dumps({"what": "child", "pid": child.pid}) + "\\n")
"""


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_failure_ends_all_names_its_log_and_leaves_nothing(bench: Bench, when: str) -> None:
    fails = "if (run, side) == ('run-1', 'recorded'): sys.exit('broken')\n"
    all_started = "wait(lambda: len(told('child')) >= 6)\n"
    lines = {"before": CHILD + all_started, "meanwhile": ""}
    lines[when] += fails
    others_hang = "run == 'run-1' or time.sleep(60)"
    status, _, errors = bench.run(*THREE, "--pairs", "9", **lines, after=others_hang)
    log = bench.out / "run-1" / "recorded.txt"
    assert status == 1
    assert errors == f"launch_bound: failed: see {log}\n"
    assert "broken" in log.read_text()
    assert len(bench.told("child")) >= 6
    until(lambda: not bench.left())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_stops_all(bench: Bench, number: int) -> None:
    process = bench.start(*THREE, "--pairs", "9", before=CHILD, meanwhile="time.sleep(60)")
    until(lambda: len(bench.told("begun")) == 6)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (1, "stopped\n")
    assert len(bench.told("child")) == 6
    until(lambda: not bench.left())
    assert bench.rows() == []


def test_who_does_not_say_that_it_begins_goes_alone(bench: Bench) -> None:
    silent = "os.environ['BEGUN'] = os.devnull; os.kill(os.getpid(), signal.SIGCONT)"
    status, _, errors = bench.run(*THREE, "--pairs", "3", before=silent)
    assert status == 1 and "does not say when its steps begin" in errors
    assert bench.run("--pairs", "1", before=silent)[0] == 0


def test_no_pair_begins_after_the_time(bench: Bench) -> None:
    status, out, errors = bench.run(*THREE, "--pairs", "4", "--minutes", "0")
    assert (status, out, errors) == (0, "", "4 of 4 pairs are left\n")
    assert bench.told("start") == []


@pytest.mark.parametrize(
    ("cores", "found"), [("3", {3}), ("2-5", {2, 3, 4, 5}), ("0-6:3,9", {0, 3, 6, 9}), ("1,0", {0, 1})]
)
def test_cores_are_read_as_taskset_reads_them(cores: str, found: set[int]) -> None:
    assert cost_pairs.core_numbers(cores) == found


@pytest.mark.parametrize(
    "words", [("--cores", "a-b"), ("--cores", "5-2"), ("--gpus", "0,"), ("--gpus", "1,1")]
)
def test_what_is_no_set_is_refused(bench: Bench, words: tuple[str, str]) -> None:
    status, _, errors = bench.run(*words)
    assert status == 2 and words[0] in errors


def test_sets_overlap_nowhere_and_serve_every_gpu(tmp_path: Path) -> None:
    with pytest.raises(cost_pairs.FailedError, match="overlap"):
        cost_pairs.places(tmp_path, ["0-3", "4-6,2"], [])
    with pytest.raises(cost_pairs.FailedError, match="2 GPUs"):
        cost_pairs.places(tmp_path, ["0-3"], ["0", "1"])


def test_places_of_one_gpu_share_its_turns_alone(tmp_path: Path) -> None:
    four = cost_pairs.places(tmp_path, ["0", "1", "2", "3"], ["0", "1"])
    assert four[0].alone is four[2].alone is not four[1].alone is four[3].alone is not None
    assert len({place.folder for place in four}) == 4
    for cores, gpus in (([], []), (["0-3"], ["1"]), ([], ["0", "1"])):
        assert [place.alone for place in cost_pairs.places(tmp_path, cores, gpus)] == [None] * max(
            len(gpus), 1
        )
