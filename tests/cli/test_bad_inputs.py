"""Bad inputs at the command line: each is one sentence and a status, or a sounding that says what is wrong.

What may go wrong inside a trace is tested beside the importer; here are files, folders, disks and deaths.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.sounding import open_store
from tests.support.running import PYTHON, environment, fathom_command, run_fathom, start_fathom, wait_for
from tests.support.small_sounding import make


def invoke(*words: object) -> subprocess.CompletedProcess[str]:
    """`fathom WORDS` in this process, which is quicker; an error that nobody foresaw fails the test."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(list(words), done.exit_code, done.stdout, done.stderr)


def refused(done: subprocess.CompletedProcess[str], status: int = 2) -> str:
    """Its message: one line on standard error, with no traceback."""
    assert done.returncode == status, (done.returncode, done.stderr)
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith("fathom: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# A sounding that is none: what is made at s.fathom, and a word of the sentence.


def nothing(path: Path) -> None:
    pass


def an_empty_folder(path: Path) -> None:
    path.mkdir()


def a_text_file(path: Path) -> None:
    path.write_text("hello")


def an_empty_file(path: Path) -> None:
    path.touch()


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_loop_of_links(path: Path) -> None:
    path.symlink_to(path.name)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def raw_records_only(path: Path) -> None:
    (path / "raw").mkdir(parents=True)


def a_manifest(text: str | bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        make(path)
        (path / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())

    return damage


def a_folder_as_manifest(path: Path) -> None:
    (path / "manifest.json").mkdir(parents=True)


def a_table(change: Callable[[bytes], bytes] | None) -> Callable[[Path], None]:
    """With one table changed, or, for None, lost."""

    def damage(path: Path) -> None:
        table = make(path).path / "rank-0" / "kernels.parquet"
        if change is None:
            table.unlink()
        else:
            table.write_bytes(change(table.read_bytes()))

    return damage


def a_flipped_bit(data: bytes) -> bytes:
    """In the middle, where it changes a value and breaks nothing."""
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def a_broken_inside(data: bytes) -> bytes:
    """The beginning and the end are right; the footer between them is not."""
    return data[:4] + bytes(len(data) - 8) + data[-4:]


def a_zip(*entries: tuple[str, bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in entries:
                archive.writestr(name, data)

    return write


def a_zip_with_a_link(path: Path) -> None:
    entry = zipfile.ZipInfo("machine.json")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr(entry, "/etc/passwd")


def a_zip_cut_short(path: Path) -> None:
    a_zip(("manifest.json", b"{}" * 1000))(path)
    path.write_bytes(path.read_bytes()[:-10])


def a_zip_with_a_flipped_byte(path: Path) -> None:
    a_zip(("manifest.json", b'{"format": 1}'))(path)
    data = bytearray(path.read_bytes())
    data[data.index(b'{"format')] ^= 1
    path.write_bytes(data)


def a_zip_that_grows(path: Path) -> None:
    """A few bytes whose directory promises a terabyte."""
    a_zip(("manifest.json", b"x"))(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)


NO_SOUNDING = [
    (nothing, "does not exist"),
    (an_empty_folder, "no manifest.json"),
    (a_text_file, "not a packed sounding"),
    (an_empty_file, "not a packed sounding"),
    (a_dangling_link, "does not exist"),
    (a_loop_of_links, "cannot be read"),
    (a_device, "cannot be read"),
    (raw_records_only, "fathom import"),
    (a_manifest('{"format": 99}'), "upgrade"),
    (a_manifest('{"format": 1, "name":'), "not valid JSON"),
    (a_manifest(b"\xff\xfe\x00"), "not valid JSON"),
    (a_manifest(""), "not valid JSON"),
    (a_manifest("[1, 2]"), "damaged"),
    (a_manifest("{}"), "no format"),
    (a_manifest('{"format": "one"}'), "no format"),
    (a_manifest('{"format": 1, "ranks": [{"rank": "zero"}]}'), "damaged"),
    (a_folder_as_manifest, "cannot be read"),
    (a_table(lambda data: data[: len(data) // 2]), "damaged"),
    (a_table(lambda data: b""), "damaged"),
    (a_table(lambda data: b"hello" * 100), "damaged"),
    (a_table(a_broken_inside), "damaged"),
    (a_table(a_flipped_bit), "damaged"),
    (a_table(None), "is missing"),
    (a_zip(("manifest.json", b"{}"), ("../evil.json", b"{}")), "no sounding has"),
    (a_zip(("manifest.json", b"{}"), ("/tmp/evil.json", b"{}")), "no sounding has"),
    (a_zip(("manifest.json", b"{}"), ("a/../../evil.json", b"{}")), "no sounding has"),
    (a_zip(("manifest.json", b"{}"), ("run.sh", b"rm")), "not a packed sounding"),
    (a_zip(("notes.json", b"{}")), "no manifest.json"),
    (a_zip(), "no manifest.json"),
    (a_zip_with_a_link, "no sounding has"),
    (a_zip_cut_short, "not a packed sounding"),
    (a_zip_with_a_flipped_byte, "damaged"),
    (a_zip_that_grows, "damaged"),
]


def name_of(value: object) -> str | None:
    return getattr(value, "__qualname__", None)


@pytest.mark.parametrize(("damage", "says"), NO_SOUNDING, ids=name_of)
def test_what_is_no_sounding(tmp_path, damage, says):
    path = tmp_path / "inside" / "s.fathom"
    path.parent.mkdir()
    damage(path)
    before = sorted(tmp_path.rglob("*"))
    done = invoke("query", path, "SELECT name FROM kernels")
    assert says in refused(done)
    assert says in refused(invoke("report", path))
    assert says in refused(invoke("pack", path, "-o", tmp_path / "packed.zip"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tmp_path):
    path = make(tmp_path / "s.fathom").path
    path.chmod(0)
    try:
        assert "cannot be read" in refused(invoke("query", path, "SELECT 1"))
    finally:
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.json"], "missing.json"),
        (["empty"], "contains neither traces"),
        (["made.fathom"], "already a sounding"),
        (["recording", "text.json"], "cannot be combined"),
        (["text.json"], "text.json"),
        (["zero.json"], "zero.json"),
        (["/dev/null"], "null"),
        (["text.json", "-o", "/proc/nowhere/x.fathom"], ""),
        (["recording", "-o", "made.fathom"], "already exists"),
    ],
)
def test_what_cannot_be_imported(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "zero.json").touch()
    (tmp_path / "recording" / "raw").mkdir(parents=True)
    make(tmp_path / "made.fathom")
    assert says in refused(invoke("import", *words))


PHASE = {"phase": "clean", "burst": 1, "kind": "train", "samples": None, "tokens": None, "stream": None}
LOST = {"t": "trace", "phase": "timeline", "burst": 2, "file": "trace-5-2-timeline.json", "k0": 1, "k1": 2}


def recording(folder: Path, **files: str | bytes) -> Path:
    """A folder with raw records as a surface recording of two steps leaves them, and changes to it."""
    raw = folder / "r.fathom" / "raw"
    raw.mkdir(parents=True)
    process = {
        "t": "process",
        "pid": 5,
        "ppid": 1,
        "rank": 0,
        "role": "rank",
        "start_ns": 10,
        "main_thread": 5,
    }
    marks = [
        {"t": "mark", "k": k, "ns": 10**18 + k * 10**7, "source": "mark", "thread": 5, **PHASE}
        for k in range(3)
    ]
    total = {
        "plan.json": "{}",
        "launch.json": json.dumps({"command": ["python", "x.py"], "start_ns": 10**18, "name": "r"}),
        "end.json": json.dumps({"exit_status": 0, "signal": None, "ended": "finished", "end_ns": 2 * 10**18}),
        "proc-5.jsonl": "".join(json.dumps(record) + "\n" for record in [process, *marks]),
    }
    for name, data in {**total, **files}.items():
        if data is not None:
            (raw / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return raw.parent


def lines(folder: Path) -> str:
    return (folder / "raw" / "proc-5.jsonl").read_text()


TORN = {
    "the end is missing": {"end.json": None},
    "the launch is missing": {"launch.json": None},
    "everything but the marks is missing": {"end.json": None, "launch.json": None, "plan.json": None},
    "the launch is no JSON": {"launch.json": "{torn"},
    "the end is a list": {"end.json": "[]"},
    "telemetry is torn": {"telemetry.jsonl": '{"device": -1, "time_ns": 1000000000000000000}\n{"dev'},
    "telemetry is noise": {"telemetry.jsonl": b"\xff\xfe\x00\n"},
    "a process wrote nothing": {"proc-6.jsonl": ""},
    "a process wrote noise": {"proc-6.jsonl": b"\x00\xff{]\n[1]\n"},
    "a trace was announced and never written": {},
}


@pytest.mark.parametrize("what", TORN)
def test_torn_records_become_a_sounding(tmp_path, what):
    folder = recording(tmp_path, **TORN[what])
    if "announced" in what:
        (folder / "raw" / "proc-5.jsonl").write_text(lines(folder) + json.dumps(LOST) + "\n")
    done = invoke("import", folder, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert json.loads(done.stdout)["rows"]["steps"] == 2
    if "announced" in what:
        assert json.loads(done.stdout)["problems"]


def test_a_trace_replaces_the_sounding_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 10, "name": "a", "cat": "cpu_op"}
    (tmp_path / "rank.json").write_text(json.dumps([event]))
    for words, name in (((), "rank"), ((), "rank-2"), (("--replace",), "rank")):
        done = invoke("import", "rank.json", "--json", *words)
        assert json.loads(done.stdout)["path"] == f"{name}.fathom", done.stderr


def test_records_are_imported_over_a_sounding_only_when_that_is_asked_for(tmp_path):
    folder, out = recording(tmp_path), tmp_path / "out.fathom"
    assert invoke("import", folder, "-o", out).returncode == 0
    assert "already exists" in refused(invoke("import", folder, "-o", out))
    done = invoke("import", folder, "-o", out, "--replace", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["rows"]["steps"] == 2
    assert (folder / "raw").is_dir()


KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.0, "dur": 5.0, "pid": 0, "tid": 7}
KERNEL["args"] = {"device": 0, "stream": 7, "correlation": 1}


def test_a_sounding_is_kept_when_what_should_replace_it_is_no_good(tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps({"traceEvents": [KERNEL]}))
    bad.write_text(good.read_text()[:-9])
    out = tmp_path / "out.fathom"
    assert invoke("import", good, "-o", out).returncode == 0
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert "cannot be imported" in refused(invoke("import", bad, "-o", out, "--replace"))
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    assert invoke("import", good, "-o", out, "--replace").returncode == 0
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("where", ["conform", "checksum"])
def test_a_sounding_is_kept_when_a_recording_cannot_be_written_over_it(tmp_path, monkeypatch, where):
    def full(*_):
        raise OSError(28, "No space left on device")

    folder, out = recording(tmp_path), tmp_path / "out.fathom"
    assert invoke("import", folder, "-o", out).returncode == 0
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    monkeypatch.setattr(f"fathom.sounding.store.{where}", full)
    assert "No space left" in refused(invoke("import", folder, "-o", out, "--replace"))
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("contents", ["notes.txt", "raw/images/0.png", "rank-0/model.pt"])
@pytest.mark.parametrize("how", ["import", "run"])
def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path, how, contents):
    """A data set's `raw` and a web page's `manifest.json` are no signs of a sounding."""
    folder, trace = tmp_path / "data", tmp_path / "good.json"
    trace.write_text(json.dumps({"traceEvents": [KERNEL]}))
    file = folder / contents
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    if "raw" not in contents:
        (folder / "manifest.json").write_text("{}")
    command = ("import", trace, "-o", folder, "--replace")
    if how == "run":
        command = ("run", "--no-measure", "-q", "-o", folder, "--replace", "--", PYTHON, "-c", "0")
    done = invoke(*command)
    assert done.returncode and "--replace leaves it alone" in done.stderr
    assert file.read_text() == "mine"


@pytest.mark.parametrize("lost", [1, 20, 60])
def test_a_torn_last_line_costs_only_itself(tmp_path, lost):
    folder = recording(tmp_path)
    total = lines(folder)
    (folder / "raw" / "proc-5.jsonl").write_text(total[:-lost])
    done = invoke("import", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["steps"] == (2 if lost == 1 else 1)


def test_what_is_often_taken_for_a_trace_is_told_by_its_name(tmp_path):
    packed, database = tmp_path / "s.fathom.zip", tmp_path / "report.sqlite"
    assert invoke("pack", make(tmp_path / "s.fathom").path).returncode == 0
    with closing(sqlite3.connect(database)) as base:
        base.execute("CREATE TABLE bookmarks (name TEXT)")
    assert "needs no import" in refused(invoke("import", packed))
    assert "Nsight Systems" in refused(invoke("import", database))


PATIENT = "import sys, time; print('ready', flush=True); time.sleep(600)"


def test_a_killed_program_is_told(tmp_path):
    program = PATIENT.replace("time.sleep(600)", "import os; os.kill(os.getpid(), 9)")
    done = run_fathom("run", "--quiet", "-o", "s.fathom", "python", "-c", program, cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL and "Traceback" not in done.stderr
    manifest = open_store(tmp_path / "s.fathom").manifest
    assert manifest.exit_status == 137 and manifest.ended in ("killed", "no-steps")


def test_a_killed_parent_leaves_records_that_import(tmp_path):
    process = start_fathom("run", "-o", "s.fathom", "python", "-c", PATIENT, cwd=tmp_path)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.kill()
    process.wait()
    os.killpg(process.pid, signal.SIGKILL)  # the program, which ran on
    assert "fathom import" in refused(invoke("query", tmp_path / "s.fathom", "SELECT 1"))
    done = invoke("import", tmp_path / "s.fathom")
    assert done.returncode == 0, done.stderr
    assert open_store(tmp_path / "s.fathom").manifest.exit_status is None


def with_small_files(folder: Path, limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `fathom WORDS` where no file may grow past `limit` bytes, as on a disk that is full."""

    def shrink() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        fathom_command(*words),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        preexec_fn=shrink,
    )


def test_a_disk_that_is_full_from_the_start(tmp_path):
    done = with_small_files(tmp_path, 10, "run", "-o", "s.fathom", "sh", "-c", "exit 3")
    assert "File too large" in refused(done, 125)


def test_a_disk_that_fills_up_costs_no_exit_status(tmp_path):
    words = ["run", "--raw", "-o", "s.fathom", "sh", "-c", "sleep 2.5; exit 3"]
    process = start_fathom(*words, cwd=tmp_path)
    wait_for((tmp_path / "s.fathom" / "raw" / "telemetry.jsonl").exists)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3 and "Traceback" not in errors
    assert "telemetry stopped" in errors


def test_a_full_disk_while_packing(tmp_path):
    make(tmp_path / "s.fathom")
    refused(with_small_files(tmp_path, 2000, "pack", "s.fathom"))
    assert [p.name for p in tmp_path.iterdir()] == ["s.fathom"]


def test_a_full_disk_while_importing_keeps_the_records(tmp_path):
    folder = recording(tmp_path)
    refused(with_small_files(tmp_path, 500, "import", "r.fathom"), 1)
    assert not (folder / "manifest.json").exists() and (folder / "raw" / "proc-5.jsonl").exists()


@pytest.mark.parametrize("output", ["/proc/s.fathom", "/dev/null/s.fathom", "file/s.fathom", "x" * 300])
def test_an_output_that_cannot_be_made(tmp_path, output):
    (tmp_path / "file").touch()
    refused(run_fathom("run", "-o", output, "true", cwd=tmp_path), 125)


def test_standard_error_may_be_closed(tmp_path):
    command = f"{PYTHON} -m fathom run --raw -o s.fathom sh -c 'exit 4' 2>&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 4


def test_packs_with_a_million_entries_are_refused_before_they_are_listed(tmp_path):
    path = tmp_path / "s.fathom.zip"
    a_zip(("manifest.json", b"{}"))(path)
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    data[end + 12 : end + 16] = (100 << 20).to_bytes(4, "little")  # bytes of a list of a million names
    path.write_bytes(data)
    assert "too many files" in refused(invoke("report", path))


def test_a_device_or_a_link_is_not_replaced_by_an_export(tmp_path: Path) -> None:
    sounding, target, link = make(tmp_path / "a.fathom").path, tmp_path / "real.json", tmp_path / "link.json"
    os.mkfifo(tmp_path / "pipe")
    refused(invoke("export", sounding, tmp_path / "pipe", "--to", "otel"))
    assert (tmp_path / "pipe").is_fifo()
    target.write_text("old")
    link.symlink_to(target)
    assert invoke("export", sounding, link, "--to", "otel").returncode == 0
    assert link.is_symlink() and target.read_text() != "old"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "x.fathom", "--by", "shape"), "'shape' is not one of 'kernel', 'launch'"),
        (("load", "http://127.0.0.1:1", "--model", "m", "--rate", "0"), "'--rate': it must be greater than"),
    ],
)
def test_a_wrong_value_is_explained_without_the_words_of_a_library(words, message, tmp_path):
    done = run_fathom(*words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Value error" not in done.stderr
