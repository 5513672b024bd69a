"""Pairs of the cost benchmark: a batch begins, takes its turns in silence, ends; a failure ends all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.support.paths import COST

sys.path.insert(0, str(COST))
import cost
import cost_pairs

BENCHMARKS = Path(cost.__file__).parent
PATIENCE_S = 120.0

# The benchmark itself, on a program that stands in for the ones measured; cores are passed, not used.
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

# After the first SIGCONT it works in its turns.
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
    until = time.monotonic() + 120
    while not for_it():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.005)

def until_resumed(what):
    while not signal.sigtimedwait({signal.SIGCONT}, 0.005):
        tell(what)

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
tell("start")
BEFORE
tell("begun")
Path(os.environ["BEGUN"]).touch()  # from here on it may be stopped
until_resumed("waiting")
tell("turn")
MEANWHILE
time.sleep(0.03)
tell("over")
signal.sigtimedwait({signal.SIGCONT}, 0)  # that of a second turn
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

    def entries(self, what: str) -> list[dict[str, Any]]:
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [line for line in map(json.loads, lines) if line["what"] == what]

    def rows(self) -> list[dict[str, Any]]:
        return cost.lines(self.out / "pairs.jsonl")

    def left(self) -> list[dict[str, Any]]:
        """Processes of the diary that still run."""
        result = [line for what in ("start", "child") for line in self.entries(what)]
        return [line for line in result if _runs(line["pid"])]


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


TWO_TURNS = "run == 'run-0' and until_resumed('working')"
ENDING = "until_resumed('ending')"
BATCH = ("--batch", "3", "--cores", "0", "1")


def pairs_of(lines: list[dict[str, Any]]) -> list[str]:
    """The pairs of these lines in the order of time, each once for a stretch of lines."""
    return [pair for pair, _ in groupby(line["run"] for line in sorted(lines, key=lambda line: line["at"]))]


def batches_of(bench: Bench, sides: int) -> list[list[dict[str, Any]]]:
    """The lines of the diary, by batches of so many sides that started."""
    starts = bench.entries("start")
    firsts = [line["at"] for line in starts[::sides]]
    result: list[list[dict[str, Any]]] = [[] for _ in firsts]
    for what in ("start", "begun", "waiting", "turn", "working", "over", "ending", "end"):
        for line in bench.entries(what):
            result[bisect(firsts, line["at"]) - 1].append(line)
    return result


def times(lines: list[dict[str, Any]], what: str) -> list[int]:
    return [line["at"] for line in lines if line["what"] == what]


def test_all_begin_then_one_pair_after_the_other_takes_turns_then_all_end(bench: Bench) -> None:
    late = (
        "if (run, side) == ('run-2', 'recorded'): wait(lambda: len(told('begun')) % 6 == 5); time.sleep(0.1)"
    )
    status, out, errors = bench.run(*BATCH, "--pairs", "6", before=late, meanwhile=TWO_TURNS, after=ENDING)
    assert (status, errors) == (0, "")
    assert out == (bench.out / "pairs.jsonl").read_text()
    first, second = batches_of(bench, 6)
    for batch in (first, second):
        assert max(times(batch, "begun")) < min(times(batch, "turn"))
        turns = [
            line for line in batch if min(times(batch, "turn")) <= line["at"] <= max(times(batch, "over"))
        ]
        assert pairs_of(turns) == ["run-0", "run-1", "run-2"]
        assert max(times(batch, "over")) < min(times(batch, "end"))
        assert len(times(batch, "end")) == 6
    assert max(times(first, "end")) < min(times(second, "start"))


def test_every_pair_has_its_line_and_the_sets_of_cores_go_round(bench: Bench) -> None:
    assert bench.run(*BATCH, "--pairs", "5")[0] == 0
    rows = bench.rows()
    assert [(row["pair"], row["cores"]) for row in rows] == [(k, "01"[k % 2]) for k in range(5)]
    assert {(row["ratio"], row["steps"], row["ratio_of_turns"], row["turns"]) for row in rows} == {
        (2.0, 40, None, 0)  # the program does not tell when it began
    }
    kept = cost.lines(bench.out / "steps.jsonl")
    assert [row["pair"] for row in kept] == list(range(5))
    assert kept[4]["untouched"]["steps_s"] == [0.001] * 100


def test_each_gpu_has_a_pair_at_its_turns_and_none_ends_before_all_are_over(bench: Bench) -> None:
    waits = (
        "wait(lambda: {line['gpu'] for line in told('turn')} == {'4', '7'}); gpu == '4' or time.sleep(0.2)"
    )
    words = ("--batch", "2", "--cores", "0", "1", "2", "--gpus", "4,7", "--pairs", "4")
    assert bench.run(*words, meanwhile=waits, after=ENDING)[0] == 0
    where = {row["pair"]: (row["gpu"], row["cores"]) for row in bench.rows()}
    assert where == {0: ("4", "0"), 1: ("7", "1"), 2: ("4", "2"), 3: ("7", "1")}
    (batch,) = batches_of(bench, 8)
    assert max(times(batch, "begun")) < min(times(batch, "turn"))
    for gpu, pairs in (("4", ["run-0", "run-2"]), ("7", ["run-1", "run-3"])):
        own = [line for line in batch if line["gpu"] == gpu]
        assert pairs_of([line for line in own if line["what"] in ("turn", "over")]) == pairs
    assert max(times(batch, "over")) < min(times(batch, "end"))


def test_one_pair_at_a_time_unless_asked_and_either_begins_by_turns(bench: Bench) -> None:
    assert bench.run("--pairs", "2")[0] == 0
    assert [row["pair"] for row in bench.rows()] == [0, 1]
    assert not {"cores", "gpu"} & set(bench.rows()[0])
    assert [line["run"] for line in bench.entries("start")] == ["run"] * 4
    assert [line["side"] for line in bench.entries("turn")] == [
        "untouched",
        "recorded",
        "recorded",
        "untouched",
    ]
    first, second = (max(line["at"] for line in bench.entries("end")[:2]), bench.entries("start")[2]["at"])
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
    status, _, errors = bench.run(*BATCH, "--pairs", "9", **lines, after=others_hang)
    log = bench.out / "run-1" / "recorded.txt"
    assert status == 1
    assert errors == f"launch_bound: failed: see {log}\n"
    assert "broken" in log.read_text()
    assert len(bench.entries("child")) >= 6
    until(lambda: not bench.left())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_stops_all(bench: Bench, number: int) -> None:
    process = bench.start(*BATCH, "--pairs", "9", before=CHILD, meanwhile="time.sleep(60)")
    until(lambda: len(bench.entries("begun")) == 6)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (1, "stopped\n")
    assert len(bench.entries("child")) == 6
    until(lambda: not bench.left())
    assert bench.rows() == []


def test_who_does_not_say_that_it_begins_goes_alone(bench: Bench) -> None:
    silent = "os.environ['BEGUN'] = os.devnull; os.kill(os.getpid(), signal.SIGCONT)"
    status, _, errors = bench.run(*BATCH, "--pairs", "3", before=silent)
    assert status == 1 and "does not say when its steps begin" in errors
    assert bench.run("--pairs", "1", before=silent)[0] == 0


def test_no_pair_begins_after_the_time(bench: Bench) -> None:
    status, out, errors = bench.run(*BATCH, "--pairs", "4", "--minutes", "0")
    assert (status, out, errors) == (0, "", "4 of 4 pairs are left\n")
    assert bench.entries("start") == []


@pytest.mark.parametrize(
    ("cores", "expected"), [("3", {3}), ("2-5", {2, 3, 4, 5}), ("0-6:3,9", {0, 3, 6, 9}), ("1,0", {0, 1})]
)
def test_cores_are_read_as_taskset_reads_them(cores: str, expected: set[int]) -> None:
    assert cost_pairs.core_numbers(cores) == expected


@pytest.mark.parametrize(
    "words", [("--cores", "a-b"), ("--cores", "5-2"), ("--gpus", "0,"), ("--gpus", "1,1")]
)
def test_what_is_no_set_is_refused(bench: Bench, words: tuple[str, str]) -> None:
    status, _, errors = bench.run(*words)
    assert status == 2 and words[0] in errors


def test_gpus_share_no_core_and_each_has_some(tmp_path: Path) -> None:
    with pytest.raises(cost_pairs.FailedError, match="GPUs share cores"):
        cost_pairs.Places(tmp_path, ["0-3", "4-6,2"], ["0", "1"])
    with pytest.raises(cost_pairs.FailedError, match="2 GPUs"):
        cost_pairs.Places(tmp_path, ["0-3"], ["0", "1"])
    assert cost_pairs.Places(tmp_path, ["0-3", "2-5"], batch=2)[1].cores == "2-5"


@pytest.mark.parametrize("gpus", [[], ["0"], ["0", "1"], ["0", "1", "2"]])
@pytest.mark.parametrize(("sets", "batch", "pairs"), [(0, 1, 5), (3, 1, 7), (4, 3, 14), (7, 8, 30)])
def test_pairs_are_dealt_out_evenly(
    tmp_path: Path, gpus: list[str], sets: int, batch: int, pairs: int
) -> None:
    places = cost_pairs.Places(tmp_path, [str(core) for core in range(sets)], gpus, batch)
    batches = list(places.batches(pairs))
    assert [number for numbers in batches for number in numbers] == list(range(pairs))
    for numbers in batches:
        at = [places[number] for number in numbers]
        assert len({place.folder for place in at}) == len(at) <= batch * max(len(gpus), 1)
        assert max(Counter(place.gpu for place in at).values()) <= batch
    on = {gpu: [p for p in map(places.__getitem__, range(pairs)) if p.gpu == gpu] for gpu in gpus or [None]}
    for gpu, own in on.items():
        assert all(item.recorded_first != following.recorded_first for item, following in pairwise(own))
        others = {place.cores for other, theirs in on.items() if other != gpu for place in theirs}
        assert not sets or not {place.cores for place in own} & others


@pytest.mark.parametrize(
    ("seconds", "begun"), [(0, 0), (1, 1), (119, 1), (121, 2), (179, 2), (181, 3), (9e9, 4)]
)
def test_no_batch_begins_that_would_end_after_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, begun: int
) -> None:
    now = [1000.0]
    monkeypatch.setattr(cost, "time", SimpleNamespace(monotonic=lambda: now[0]))
    result = []
    for batch in cost.in_time([range(k, k + 1) for k in range(4)], seconds):
        result.append(batch)
        now[0] += 60
    assert len(result) == begun


def test_an_empty_batch_is_refused(bench: Bench) -> None:
    status, _, errors = bench.run("--batch", "0")
    assert status == 2 and "--batch" in errors
