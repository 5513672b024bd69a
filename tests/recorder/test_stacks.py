"""Stacks sampled from outside: what a walk through memory meets, against what Python itself says."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from fathom.probe.frames import (
    DENSE,
    FIFO,
    LAYOUT,
    SPARSE,
    Beacon,
    FrameLayout,
    NoFramesError,
    ProcessMemory,
    calibrate,
    thread_state,
)
from fathom.recorder.stacks import Codes, StackSampler, Walker, line_table, rehearse
from fathom.recorder.stacks.codes import TornError
from fathom.recorder.stacks.sampler import IdleCores
from fathom.recorder.stacks.target import PROCESSOR, Activity, SampledProcess
from fathom.sounding.raw.stacks import is_program, stacks
from tests.support.paths import SOURCE
from tests.support.running import wait_for

CHILD = """
import json, sys, threading, traceback
from dataclasses import asdict
from fathom.probe.frames import calibrate, thread_state

def tell():
    stack = [(f.filename, f.lineno, f.name) for f in traceback.extract_stack()[:-1]]
    print(json.dumps({"state": thread_state(), "layout": asdict(calibrate()), "stack": stack}), flush=True)
    sys.stdin.readline()

class Öffner:
    def __call__(self, depth):
        if depth:
            return sorted([depth], key=lambda d: self(d - 1))
        return list(self.walk())

    def walk(self):
        with threading.Lock():
            yield tell()

def deep(n):
    if n == 0:
        return Öffner()(3)
    return deep(n - 1)

deep(int(sys.argv[1]))
"""


def other_pythons() -> list[str]:
    """Interpreters of other versions, where this machine has them."""
    known = Path.home() / ".pyenv" / "versions"
    result = [
        *known.glob("3.1[1-9]*/bin/python3"),
        *map(Path, filter(None, [shutil.which("/usr/bin/python3.11")])),
    ]
    return [sys.executable, *map(str, sorted(result))]


@pytest.mark.parametrize("python", other_pythons())
@pytest.mark.parametrize("depth", [0, 150])
def test_a_walk_through_memory_meets_the_frames_that_python_reports(
    python: str, depth: int, tmp_path: Path
) -> None:
    script = tmp_path / "prögram_€.py"
    script.write_text(CHILD, encoding="utf-8")
    child = subprocess.Popen(
        [python, str(script), str(depth)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUTF8": "1"},
    )
    assert child.stdout is not None
    document = json.loads(child.stdout.readline())
    memory, layout = ProcessMemory(child.pid), FrameLayout(**document["layout"])
    chain = Walker(memory, layout).walk(document["state"])
    assert chain is not None
    codes = Codes(memory, layout)
    frames = [codes.frame(chain[i], chain[i + 1]) for i in range(0, len(chain), 2)]
    child.communicate("\n")
    met = [
        (file, line, name.rpartition(".")[2])
        for name, file, line in reversed([frame for frame in frames if frame])
    ]
    expected = [tuple(item) for item in document["stack"]]
    assert met[: len(expected) - 1] == expected[:-1]  # the innermost has gone on to wait
    assert met[len(expected) - 1][::2] == expected[-1][::2]


def functions_of(code: object) -> list[object]:
    inner = [item for const in code.co_consts if hasattr(const, "co_consts") for item in functions_of(const)]  # type: ignore[attr-defined]
    return [code, *inner]


def test_line_tables_of_the_standard_library_decode_as_python_decodes_them() -> None:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    random.Random(1).shuffle(files)
    checked = 0
    for file in files[:25]:
        for code in functions_of(compile(file.read_text(encoding="utf-8"), str(file), "exec")):
            starts, lines, size = line_table(code.co_linetable, code.co_firstlineno)  # type: ignore[attr-defined]
            own = {s + i: line for s, e, line in code.co_lines() for i in range(0, e - s, 2)}  # type: ignore[attr-defined]
            bounds = [*starts[1:], size]
            mine = {
                s + i: line
                for s, e, line in zip(starts, bounds, lines, strict=True)
                for i in range(0, e - s, 2)
            }
            assert mine == own
            checked += 1
    assert checked > 300


def test_invalid_code_objects_are_refused() -> None:
    layout, memory = calibrate(), ProcessMemory(os.getpid())
    codes = Codes(memory, layout)
    other = ["no code"] * 64
    with pytest.raises(TornError):
        codes.frame(id(other), id(other) + layout.bytecode)
    with pytest.raises(OSError):
        codes.frame(8, 16)
    code = calibrate.__code__
    with pytest.raises(TornError):
        codes.frame(id(code), id(code) + (1 << 20))


def test_a_vanished_thread_state_gives_no_stack() -> None:
    walker = Walker(ProcessMemory(os.getpid()), calibrate())
    assert walker.walk(64) is None
    assert walker.gone(64)
    assert not walker.gone(thread_state())


def test_a_blocked_thread_names_the_call_and_a_busy_one_runs() -> None:
    sleeping = subprocess.Popen(["sleep", "30"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        if Path(f"/proc/{sleeping.pid}/syscall").exists():
            wait_for(lambda: Activity(sleeping.pid, sleeping.pid).now() == (False, "clock_nanosleep"))
        wait_for(lambda: Activity(busy.pid, busy.pid).now() == (True, None))
    finally:
        sleeping.kill()
        busy.kill()
        sleeping.wait()
        busy.wait()
    assert Activity(sleeping.pid, sleeping.pid).now() == (None, None)


def test_a_thread_is_displaced_where_the_sampler_took_its_processor() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # so that the thread does not move meanwhile
    try:
        assert Activity(os.getpid(), threading.get_native_id()).displaced()
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_thread_on_another_processor_is_not_displaced(tmp_path: Path) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    fields = ["S", *["0"] * (PROCESSOR - 1), str(1 << 20)]
    (task / "stat").write_text(f"7 (python (3)) {' '.join(fields)} 0 0\n")
    assert not Activity(7, 7, root=str(tmp_path)).displaced()
    assert not Activity(8, 8, root=str(tmp_path)).displaced()


MARKED = pl.DataFrame(
    {"ns": [0], "phase": ["timeline"], "burst": [1]},
    schema={"ns": pl.Int64, "phase": pl.String, "burst": pl.Int32},
)
SAMPLED = """
import sys, time
from fathom.probe.frames import Beacon

class Session:
    raw = sys.argv[1]
    def note(self, what, text): print(what, text)

def rest():
    time.sleep(0.4)

def work():
    end = time.perf_counter() + 0.4
    while time.perf_counter() < end:
        pass

def call():
    sum(range(40_000_000))  # one instruction

beacon = Beacon(Session())
beacon.follow("timeline")
rest()
work()
call()
beacon.follow("transition")
work()
if sys.argv[2] == "dies":
    beacon.follow("timeline")
    rest()
    import os
    os.kill(os.getpid(), 9)
"""


class Stretch:
    """A process that is sampled at a rate and has had so many samples."""

    on = True

    def __init__(self, rate: str, samples: int = 0) -> None:
        self.rate, self.samples, self.sparse = rate, samples, samples


def test_cores_are_idle_as_far_as_nobody_used_them() -> None:
    class Times(NamedTuple):
        user: float
        idle: float
        iowait: float
        guest: float = 0.0

    seen = [Times(0, 0, 0)] * 3
    idle = IdleCores(lambda: seen, cores=[0, 1])  # the third core is not ours
    assert idle.count() is None  # no time has passed
    seen = [Times(10, 0, 0, 10), Times(2, 7, 1), Times(0, 10, 0)]
    assert idle.count() == pytest.approx(0.8)
    seen = []
    assert idle.count() is None


def test_clean_steps_are_sampled_rarely_and_ever_more_so(tmp_path: Path) -> None:
    sampler = StackSampler(tmp_path)
    pauses = [sampler._pause([Stretch(SPARSE, samples)]) for samples in (0, 1_999, 2_000, 4_000, 400_000)]
    for pause, period in zip(pauses, (0.025, 0.025, 0.05, 0.1, 0.025 * (1 << 20)), strict=True):
        assert 0.75 * period <= pause <= 1.25 * period
    assert sampler._pause([Stretch(DENSE)]) < 0.01


def test_a_burst_of_one_process_is_not_thinned_by_clean_steps_of_another(tmp_path: Path) -> None:
    sampler = StackSampler(tmp_path)
    burst, clean = Stretch(DENSE), Stretch(SPARSE)
    sampler._targets = {1: burst, 2: clean}
    assert sampler._active() == [burst]
    burst.on = False
    assert sampler._active() == [clean]


ATTEMPTS = 3  # on a busy host the program may hardly run while it is sampled


@pytest.mark.parametrize("way", ["ends", "dies"])
def test_samples_say_where_the_program_ran_and_where_it_slept(way: str, tmp_path: Path) -> None:
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        try:
            samples_say_where(way, folder)
            break
        except AssertionError:
            if attempt == ATTEMPTS - 1:
                raise


def samples_say_where(way: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SAMPLED)
    with StackSampler(tmp_path) as sampler:
        assert sampler.fault is None
        child = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), way], env={**os.environ, "PYTHONPATH": str(SOURCE)}
        )
        child.wait()
        time.sleep(0.2)
    assert sampler.fault is None
    assert not (tmp_path / FIFO).exists()
    table, facts = stacks(tmp_path, child.pid, MARKED)
    assert facts["stacks"]["samples"] >= table.height > 20
    asleep = table.filter(pl.col("call") == "clock_nanosleep")
    assert set(asleep["function"]) == {"rest"}
    assert set(asleep["source"]) == {f"{script}:10"}
    busy = table.filter(pl.col("function") == "work")
    assert busy["running"].mean() > 0.9  # type: ignore[operator]
    assert set(busy["source"]) <= {f"{script}:{line}" for line in (13, 14, 15)}
    assert asleep["moved"].null_count() == asleep.height  # only a thread that runs is read twice
    calling = table.filter(pl.col("function") == "call")
    for rows, moves in ((busy, True), (calling, False)):
        looked = rows.drop_nulls("moved").filter(
            pl.col("on_processor").fill_null(1.0) > 0.8
        )  # not on a busy host
        assert looked.height < 5 or (looked["moved"].mean() > 0.3) == moves  # type: ignore[operator]
        assert rows["apart_ns"].null_count() == rows["moved"].null_count()
    assert table["stack"][0].startswith(f"<module> ({script}:")


class Torn(NamedTuple):
    """A walker whose walks return `chains`."""

    chains: Iterator[tuple[int, int] | None]

    def walk(self, state: int) -> tuple[int, int] | None:
        return next(self.chains)


class Standing:
    """A walker whose second walk looks like the first, and its later glances at the innermost frame."""

    def __init__(self, *glances: bytes) -> None:
        self.innermost, self._glances = b"call", iter(glances)

    def walk(self, state: int) -> tuple[int, int]:
        return 1, 2

    def glance(self, state: int) -> bytes:
        return next(self._glances, b"call")


@pytest.mark.parametrize(
    ("glances", "moved"),
    [
        ([b"call", b"call", b"load"], True),  # a short loop that calls perf_counter most of the time
        ([], False),  # a native call
        ([b"call and the next page"], False),
        ([b""], False),  # unreadable
    ],
)
def test_a_short_loop_is_not_taken_for_a_native_call(glances: list[bytes], moved: bool) -> None:
    process = SampledProcess.__new__(SampledProcess)
    process._walker, process._activity, process._state = Standing(*glances), None, 0  # type: ignore[assignment]
    assert process._moves((1, 2), 0)[0] is moved


def test_a_torn_walk_is_repeated_because_only_running_threads_tear_it() -> None:
    process = SampledProcess.__new__(SampledProcess)
    chains = iter([None, None, (1, 2), (3, 4)])
    process._walker, process._state, process.rate = Torn(chains), 0, DENSE  # type: ignore[assignment]
    assert process._walk()[1] == (1, 2)
    assert next(chains) == (3, 4)
    process._walker = Torn(iter([None] * 100))  # type: ignore[assignment]
    assert process._walk()[1] is None


def test_without_a_sampler_the_program_continues(tmp_path: Path) -> None:
    notes: list[str] = []

    class Session:
        raw = str(tmp_path)

        def note(self, what: str, text: str) -> None:
            notes.append(text)

    beacon = Beacon(Session())
    beacon.follow("timeline")
    beacon.follow("clean")
    assert not notes
    assert not (tmp_path / LAYOUT.format(pid=os.getpid())).exists()


def test_frames_that_are_not_understood_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fathom.probe.frames.layout.verified", lambda *_: False)
    with pytest.raises(NoFramesError, match="differ from those that Python reports"):
        calibrate()
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    with pytest.raises(NoFramesError, match=r"3\.11 or later"):
        calibrate()


def test_the_programs_own_files_are_neither_libraries_nor_fathom() -> None:
    about = {"standard": ["/usr/lib/python3.11"], "fathom": "/opt/fathom/src/fathom"}
    assert is_program("/home/me/train.py", about)
    assert is_program("/usr/lib/python3.11x/train.py", about)
    assert not is_program("/usr/lib/python3.11/threading.py", about)
    assert not is_program("/home/me/.venv/lib/python3.11/site-packages/torch/x.py", about)
    assert not is_program("/opt/fathom/src/fathom/probe/session.py", about)
    assert not is_program("<frozen importlib._bootstrap>", about)
    generated = "/tmp/torchinductor_me/4q/c4q3ohaw53xfouy75pt6ws47zjyhgdhrtyr6y6tpk4gv3na4gv6o.py"
    assert not is_program(generated, about) and is_program("/tmp/4q/classifier.py", about)


def test_a_torn_line_keeps_the_samples_before_it(tmp_path: Path) -> None:
    lines = [
        {"t": "frames", "rows": [["f", "/p.py", 3]]},
        {"t": "stacks", "rows": [[0]]},
        {"t": "samples", "thread": 7, "rows": [[5, True, None, 0]]},
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "stacks-9.jsonl").write_text(text + '\n{"t": "samples", "thr')
    table, _ = stacks(tmp_path, 9, MARKED)
    assert table.select("time_ns", "thread", "running", "function", "source").rows() == [
        (5, 7, True, "f", "/p.py:3")
    ]


POOL = "Thread.run (/usr/lib/python3.12/threading.py:1010);"
WORKER = POOL + "_worker (/usr/lib/python3.12/concurrent/futures/thread.py:90)"
GET = "Queue.get (/usr/lib/python3.12/queue.py:171);Condition.wait (/usr/lib/python3.12/threading.py:327)"
QUEUED = f"WorkerThread.run (/site-packages/anyio/_backends/_asyncio.py:982);{GET}"
LOADING = f"{POOL}_Iter._get (/site-packages/torch/utils/data/dataloader.py:1291);{GET}"
LOOP = "<module> (/app.py:9);run (/usr/lib/python3.12/asyncio/runners.py:194);audit (/app.py:5)"
POLLING = "<module> (/app.py:9);watch (/app.py:5)"  # a main thread without an event loop


@pytest.mark.parametrize(
    ("worker", "main", "follows"),
    [
        (WORKER, LOOP, True),
        (QUEUED, LOOP, True),
        (QUEUED, POLLING, False),
        (POLLING, LOOP, False),
        (LOADING, LOOP, False),
    ],
)
def test_an_idle_worker_waits_for_what_the_event_loop_does(worker, main, follows, tmp_path: Path) -> None:
    """Only one of two samples of the worker has a sample of the main thread: the loop waited at the other."""
    frames = [frame for text in (worker, main) for frame in text.split(";")]
    named = [re.fullmatch(r"(.+) \((.+):(\d+)\)", frame).groups() for frame in frames]  # type: ignore[union-attr]
    first = len(worker.split(";"))
    lines = [
        {"t": "frames", "rows": [[name, file, int(line)] for name, file, line in named]},
        {"t": "stacks", "rows": [[*range(first)], [*range(first, len(frames))]]},
        {"t": "samples", "thread": 7, "rows": [[5, False, "futex", 0], [6, False, "futex", 0]]},
        {"t": "main", "rows": [[5, False, "clock_nanosleep", 1]]},
    ]
    (tmp_path / "stacks-9.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    table, _ = stacks(tmp_path, 9, MARKED)
    assert table["thread"].to_list() == [7, 7]
    assert table["call"].to_list() == ["clock_nanosleep" if follows else "futex", "futex"]
    assert table["stack"].to_list() == [main if follows else worker, worker]


SERVING = """
import asyncio, sys, time
from concurrent.futures import ThreadPoolExecutor
from fathom.probe.frames import Beacon

class Session:
    raw = sys.argv[1]
    def note(self, what, text): print(what, text)

beacon = Beacon(Session())

def audit():
    time.sleep(1)

async def serve():
    with ThreadPoolExecutor(1) as pool:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(pool, beacon.follow, "timeline")
        audit()
        await loop.run_in_executor(pool, beacon.follow, "transition")

asyncio.run(serve())
"""


def test_the_line_that_blocks_an_event_loop_is_sampled_while_its_worker_is_idle(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SERVING)
    with StackSampler(tmp_path) as sampler:
        child = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(SOURCE)}
        )
        child.wait()
    assert sampler.fault is None
    table, _ = stacks(tmp_path, child.pid, MARKED)
    asleep = table.filter(pl.col("call") == "clock_nanosleep")
    assert set(asleep["function"]) == {"audit"} and set(asleep["source"]) == {f"{script}:13"}
    assert set(table["thread"]) != {child.pid}


def test_a_layout_survives_json() -> None:
    layout = calibrate()
    assert FrameLayout(**json.loads(json.dumps(asdict(layout)))) == layout


@pytest.mark.parametrize("python", other_pythons())
def test_a_rehearsal_reads_a_child_of_each_python(python: str) -> None:
    assert rehearse(python) is None


def test_a_failed_rehearsal_gives_the_reason(tmp_path: Path) -> None:
    assert "does not start" in (rehearse(str(tmp_path / "nothing")) or "")
    assert "does not start in this Python" in (rehearse("/bin/true") or "")
    if (old := next((Path.home() / ".pyenv/versions").glob("3.10*/bin/python3"), None)) is not None:
        assert "3.11 or later" in (rehearse(str(old)) or "")
