"""Faults of the surroundings change nothing in the program; the records survive, or a line says why not."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from benchmarks.unusual import failing
from benchmarks.unusual.compare import Outcome, environment, outcome, readable
from fathom.atomic import atomic_write
from fathom.errors import BadInputError
from fathom.probe import faults, records
from fathom.recorder import Plan, import_any, record
from fathom.sounding.raw.folder import read

pytestmark = pytest.mark.programs

STEPS = "import os, resource, shutil, signal, sys, time, fathom\nfor _ in range(60): fathom.step()\n"
REST = "\nfor _ in range(60): fathom.step()\nprint('done', flush=True)\nsys.exit(7)"
CONTINUED = """
if not os.fork():
    time.sleep(0.2)
    os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
os.wait()
"""
SURROUNDINGS = {  # and whether the sounding has all steps
    "the folder is removed": ("shutil.rmtree(sys.argv[1] + '/raw', ignore_errors=True)", False),
    "the folder becomes a file": (
        "os.path.isdir(sys.argv[1]) and (os.rename(sys.argv[1], 'gone'), open(sys.argv[1], 'w').close())",
        False,
    ),
    "no file may grow": ("resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))", False),
    "no file may be opened": ("resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", False),
    "no memory is left": ("resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))", False),
    "no process may be started": ("resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))", True),
    "stopped and continued": (CONTINUED, True),
    "killed": ("time.sleep(0.6); fathom.step(); os.kill(os.getpid(), signal.SIGKILL)", False),
}


def without(folder: Path, words: list[str]) -> Outcome:
    return outcome(words, folder, environment())


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_the_program_does_not_notice_what_goes_wrong_around_it(tmp_path, name):
    code, complete = SURROUNDINGS[name]
    words = [sys.executable, "-c", STEPS + code + REST, str(tmp_path / "out.fathom")]
    plain = without(tmp_path, words)
    ended, steps = failing.recorded(words, tmp_path, tmp_path / "out.fathom", failing.ENVIRONMENT)
    assert (ended.status, ended.out, ended.err) == (plain.status, plain.out, plain.err)
    assert steps == 119 if complete else steps or ended.said


@pytest.mark.parametrize(
    "fault",
    ["write 1 EIO", "open 2+ ENOSPC", "close 2 EIO", "fstat 1+ ENOSPC", "file.write 1 EIO", "statvfs 2 EIO"],
)
def test_a_failed_call_of_the_probe_does_not_reach_the_program(tmp_path, fault):
    assert failing.judge("fork", tmp_path, fault, failing.without("fork", tmp_path)) == []


def test_records_are_neither_lost_nor_doubled_when_closing_a_file_fails(tmp_path, monkeypatch):
    faults.reset()
    raw = tmp_path / "raw"
    raw.mkdir()
    file = records.Records(str(raw), lambda: {"t": "process"})
    close, calls = records.os.close, count(1)

    def failing_close(number):
        close(number)
        if next(calls) % 2:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(records.os, "close", failing_close)
    for number in range(5):
        file.add({"t": "note", "what": "a", "text": str(number), "ns": 0})
        file.flush()
    file.close()
    monkeypatch.undo()
    notes = read(tmp_path).processes[0].of("note")
    assert [note["text"] for note in notes] == list("01234")


def test_two_writers_of_one_file_do_not_collide(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as first, atomic_write(path) as second:
        Path(first).write_text("first")
        Path(second).write_text("second")
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


WAITING = """
import os, sys, time, fathom
for _ in range(60): fathom.step()
open("begun", "w").close()
while not os.path.exists("go"): time.sleep(0.02)
for _ in range(60): fathom.step()
open("done", "w").close()
"""


def appears(path: Path) -> bool:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.exists()


def test_a_recording_survives_a_second_one_an_import_and_the_death_of_its_recorder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "out.fathom"
    run = [sys.executable, "-m", "fathom", "run", "-q", "--no-measure", "-o", str(folder), "--"]
    recorder = subprocess.Popen([*run, sys.executable, "-c", WAITING], env=environment())
    assert appears(tmp_path / "begun")
    with pytest.raises(BadInputError, match="already exists"):
        record([sys.executable, "-c", ""], Plan(), folder)
    with pytest.raises(BadInputError, match="still being recorded"):
        import_any([folder])
    assert import_any([folder], tmp_path / "so-far.fathom").ranks
    recorder.kill()
    recorder.wait()
    import_any([folder])
    (tmp_path / "go").touch()
    assert appears(tmp_path / "done")
    deadline = time.monotonic() + 60
    while not read(folder).processes[0].of("end") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert 0 < readable(folder) <= 59
    assert readable(import_any([folder], tmp_path / "all.fathom").path) == 119


FULL = """
mount -t tmpfs -o size=300k tmpfs "$1" && cd "$1"
"$2" -m fathom run -q --no-measure -o out.fathom -- "$2" -c "$3"
echo "status $?"
rm filler
"$2" -m fathom import out.fathom
"$2" -m fathom query out.fathom 'select count(*) > 20 as many from steps' --format csv
"""
FILLED = """
import fathom, sys, time
for k in range(400):
    fathom.step()
    time.sleep(0.002)
    if k == 300:
        file = open("filler", "wb", buffering=0)
        try:
            while file.write(bytes(4096)): pass
        except OSError: print("full", flush=True)
sys.exit(13)
"""


def test_a_disk_that_fills_stops_the_recording_and_not_the_program(tmp_path):
    words = ["unshare", "-rm", "sh", "-c", FULL, "sh", str(tmp_path), sys.executable, FILLED]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("a file system cannot be mounted here")
    assert done.stdout.startswith("full\nstatus 13\n") and done.stdout.endswith("many\ntrue\n")
    assert "Traceback" not in done.stderr
    assert "recording is off" in done.stderr and "try again with `fathom import" in done.stderr
