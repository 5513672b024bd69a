"""Nothing that the probe does or fails to do reaches the program."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from benchmarks.unusual.compare import command, environment, outcome
from fathom.probe import faults, records, room, threads
from fathom.probe.collecting import _Clock
from fathom.probe.hooks.patches import Patches, around
from fathom.sounding.raw.folder import read

PROBE = Path(faults.__file__).parent
INJECT = PROBE / "inject"
STANDARD = ("gc", "json", "os", "threading", "time", "_thread")
FAST = "own_cprofile patch_time_ns patch_open own_profile thread_profile daemonise deep_recursion few_files"


def injected(folder: Path) -> dict[str, str]:
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    mine = environment()
    path = os.pathsep.join(filter(None, [str(INJECT), mine.get("PYTHONPATH")]))
    return {**mine, "FATHOM_RAW": str(raw), "PYTHONPATH": path}


def steps(folder: Path) -> int:
    return sum(len(process.records.get("mark", ())) for process in read(folder).processes)


@pytest.mark.programs
@pytest.mark.parametrize("name", FAST.split())
def test_unusual_programs_run_as_without_the_probe(tmp_path, name):
    plain = outcome(command(name), tmp_path, environment())
    recorded = outcome(command(name), tmp_path, injected(tmp_path))
    assert (recorded.status, recorded.out, recorded.err) == (plain.status, plain.out, plain.err)
    assert steps(tmp_path) > 0


def calls_of_the_probe() -> set[tuple[str, str]]:
    """Return (module, function) of every function of STANDARD that the probe's code names."""
    named = set()
    for file in (*PROBE.rglob("*.py"), PROBE.parent / "atomic.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                named.add((node.value.id, node.attr))
    modules = {name: __import__(name) for name in STANDARD}
    return {
        (name, attr)
        for name, attr in named
        if name in modules and callable(getattr(modules[name], attr, None))
    }


EACH = """
import os, sys, fathom
calls = [call.split(".") for call in sys.argv[1:]]
modules = {name: __import__(name) for name, _ in calls}
class Planned(BaseException): pass
def broken(*args, **kwargs): raise Planned
from fathom import pristine
from fathom.probe import boot
import heapq, signal
failed = []
for place in ("theirs", "ours"):
    for name, function in calls:
        module = modules[name] if place == "theirs" else getattr(pristine, name, None)
        original = getattr(module, function, None)
        if original is None or isinstance(original, type):
            continue
        read, write = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                setattr(module, function, broken)
                for _ in range(66): fathom.step()
            except BaseException:
                failed.append(1)
            setattr(module, function, original)
            os.write(write, b"%d" % len(failed))
            os._exit(13)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if (status, os.read(read, 9)) != (13, b"0"):
            print(place, name, function, status)
        os.close(read), os.close(write)
"""


@pytest.mark.programs
def test_no_standard_function_that_raises_in_the_probe_reaches_the_program(tmp_path):
    calls = sorted(f"{module}.{function}" for module, function in calls_of_the_probe())
    assert len(calls) > 30 and "time.time_ns" in calls
    done = subprocess.run(
        [sys.executable, "-c", EACH, *calls],
        env=injected(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout == ""
    assert all(line.startswith("fathom: ") for line in done.stderr.splitlines())


class LateError(Exception):
    pass


def late(number, frame):
    raise LateError(number)


def test_an_exception_of_a_signal_handler_passes_the_fence():
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(LateError):
            faults.guarded("a part")(signal.raise_signal)(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert faults.guarded("a part")(lambda: 3)() == 3
    with pytest.raises(KeyboardInterrupt):
        faults.guarded("a part")(signal.raise_signal)(signal.SIGINT)


def test_a_wrapper_leaves_no_frame_in_a_traceback():
    class Owner:
        def work(self):
            raise LateError

    patches = Patches()
    patches.wrap(Owner, "work", around(lambda original, *args: original(*args)))
    try:
        Owner().work()
    except LateError as error:
        files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    assert files == {__file__}
    patches.undo()


def test_the_programs_profile_function_is_suspended_in_the_fence():
    seen = []
    inside = faults.guarded("a part")(lambda: [len(str(number)) for number in range(5)] and threads.is_main())

    def profile(frame, event, argument):
        seen.append((event, frame.f_code.co_name))

    sys.setprofile(profile)
    inside()
    afterwards = sys.getprofile()
    sys.setprofile(None)
    assert afterwards is profile
    assert [name for event, name in seen if event in ("call", "return")] == ["wrapper", "wrapper"]


def test_collections_are_timed_without_python_code():
    clock = _Clock()
    for _ in range(3):
        clock.callback("start", {})
        clock.callback("stop", {"generation": 2})
    pairs = list(clock.pairs())
    assert len(pairs) == 3 and all(start <= end for start, end, _ in pairs)
    assert {thread for *_, thread in pairs} == {threads.get_ident()}


def test_recording_ends_before_the_disk_is_full(tmp_path, monkeypatch, capfd):
    faults.reset()
    monkeypatch.setattr(room, "FLOOR_BYTES", 1 << 62)
    monkeypatch.setattr(room, "FLOOR_SHARE", 1.0)
    file = records.Records(str(tmp_path), lambda: {"t": "process"})
    file.add({"t": "note"})
    file.close()
    assert list(tmp_path.iterdir()) == [] and "would stay free" in capfd.readouterr().err
    faults.reset()


def test_recording_keeps_to_its_size(tmp_path, capfd):
    faults.reset()
    file = records.Records(str(tmp_path), lambda: {"t": "process"}, room.Room(str(tmp_path), 10_000))
    for number in range(1000):
        file.add({"t": "note", "number": number})
        file.flush()
    file.close()
    assert 9_000 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    assert capfd.readouterr().err.count("--max-size") == 1
    faults.reset()


def test_a_file_of_the_program_never_gets_records(tmp_path):
    file = records.Records(str(tmp_path), lambda: {"t": "process"})
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    file.add({"t": "note"})
    file.flush()
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
