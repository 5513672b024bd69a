"""Nothing that the probe does or fails to do reaches the program."""

from __future__ import annotations

import ast
import builtins
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
STANDARD = ["contextlib", "ctypes", "functools", "gc", "json", "os", "re", "struct", "sys", "sysconfig",
            "threading", "time", "zlib", "_thread"]  # fmt: skip
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


def standard_names() -> tuple[set[str], set[str]]:
    """Return functions of STANDARD, as MODULE.NAME, and built-in functions that the probe's code names."""
    attributes, names = set(), set()
    for file in (*PROBE.rglob("*.py"), PROBE.parent / "atomic.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                attributes.add((node.value.id, node.attr))
            elif isinstance(node, ast.Name):
                names.add(node.id)
    modules = {name: __import__(name) for name in STANDARD}
    functions = {
        f"{name}.{attr}"
        for name, attr in attributes
        if name in modules and callable(getattr(modules[name], attr, None))
    }
    return functions, {
        name for name in names if callable(kind := vars(builtins).get(name)) and not is_error(kind)
    }


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


EACH = """
import ast, builtins, importlib, os, sys, fathom
import heapq, signal
from fathom import pristine
from fathom.probe import boot, faults

functions, built_in = (words.split() for words in sys.argv[1:])
class Planned(BaseException): pass
def broken(*args, **kwargs): raise Planned
steps, step, missing = range(66), fathom.step, object()

def program():
    for _ in steps: step()
    boot._before_fork()
    boot._at_exit()

def forked(run):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(30)
        os.write(write, run())
        os._exit(13)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = os.read(read, 65536).decode()
    os.close(read)
    return status, said

def modules():
    program()
    ours = ("fathom.probe", "fathom.atomic")
    return " ".join(sorted(name for name in sys.modules if name.startswith(ours))).encode()

def fails(namespace, name):
    original = namespace.get(name, missing)
    failed = b""
    namespace[name] = broken
    try: program()
    except BaseException as error: failed = b"reached"
    if original is missing: del namespace[name]
    else: namespace[name] = original
    return failed

def names(module):
    with open(module.__file__) as file:
        used = {node.id for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Name)}
    own = {name for name, value in vars(module).items() if callable(value)
           and not str(getattr(value, "__module__", "")).startswith("fathom")}
    return used & (own | set(built_in)) - set(vars(faults))  # its partials are the fence

places = [(vars(builtins), name) for name in built_in]  # namespaces, and names in them
for function in functions:
    module, name = function.split(".")
    both = vars(importlib.import_module(module)), vars(getattr(pristine, module, boot))
    places += [(namespace, name) for namespace in both if name in namespace]
for module in map(importlib.import_module, forked(modules)[1].split()):
    places += [(vars(module), name) for name in names(module)]
for namespace, name in places:
    ended = forked(lambda: fails(namespace, name))
    if ended != (13, ""):
        print(namespace["__name__"], name, *ended)
print(len(places), "places")
"""


@pytest.mark.programs
def test_no_standard_function_that_raises_in_the_probe_reaches_the_program(tmp_path):
    functions, built_in = standard_names()
    assert {"time.time_ns", "re.compile", "ctypes.CDLL"} < functions and {"len", "isinstance"} < built_in
    done = subprocess.run(
        [sys.executable, "-c", EACH, " ".join(sorted(functions)), " ".join(sorted(built_in))],
        env=injected(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    *reached, counted = done.stdout.splitlines()
    assert reached == [] and int(counted.split()[0]) > 500
    assert all(line.startswith("fathom: ") for line in done.stderr.splitlines())


class LateError(Exception):
    pass


def late(number, frame):
    raise LateError(number)


@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGUSR1, late, LateError),
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),  # a shell's background jobs ignore it
    ],
)
def test_an_exception_of_a_signal_handler_passes_the_fence(number, handler, error):
    before = signal.signal(number, handler)
    try:
        with pytest.raises(error):
            faults.guarded("a part")(signal.raise_signal)(number)
    finally:
        signal.signal(number, before)
    assert faults.guarded("a part")(lambda: 3)() == 3


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


def test_the_probe_imports_nothing_that_makes_locks_of_the_program() -> None:
    """`logging` and what imports it call `threading`, whose functions the program may have replaced."""
    look = "import sys, fathom.probe.boot; print(*sys.modules.keys() & {'asyncio', 'logging', 'queue'})"
    done = subprocess.run(
        [sys.executable, "-c", look], env=environment(), capture_output=True, text=True, check=True
    )
    assert not done.stdout.strip()
