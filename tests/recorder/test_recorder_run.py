"""`fathom run` around programs of every kind: what passes through, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from fathom import recorder
from fathom.errors import BadInputError
from fathom.recorder.launch import NewFolder
from fathom.sounding.store import Writer
from tests.support.paths import CHEATS
from tests.support.running import PYTHON, SOURCE, environment, record, run_fathom, start_fathom, wait_for

pytestmark = pytest.mark.programs


def raw_run(folder: Path, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return run_fathom("run", "--raw", "-o", "out.fathom", "--", *words, cwd=folder, **env)


@pytest.mark.parametrize("status", [0, 1, 3, 125, 255])
def test_the_exit_status_is_the_programs(tmp_path, status):
    assert raw_run(tmp_path, "sh", "-c", f"exit {status}").returncode == status
    end = record(tmp_path / "out.fathom", "end")
    assert (end["exit_status"], end["ended"]) == (status, "exited" if status else "finished")


@pytest.mark.parametrize(
    ("name", "ended"), [("TERM", "interrupted"), ("KILL", "killed"), ("SEGV", "crashed")]
)
def test_a_death_by_signal_is_died_again(tmp_path, name, ended):
    done = raw_run(tmp_path, "sh", "-c", f"kill -{name} $$")
    number = getattr(signal, f"SIG{name}")
    assert done.returncode == -number
    end = record(tmp_path / "out.fathom", "end")
    assert (end["exit_status"], end["signal"], end["ended"]) == (128 + number, f"SIG{name}", ended)


def test_input_output_and_errors_are_the_programs_own(tmp_path):
    done = subprocess.run(
        [
            PYTHON,
            "-m",
            "fathom",
            "run",
            "--raw",
            "--",
            "sh",
            "-c",
            "cat; printf err >&2; printf '\\000\\377'",
        ],
        input=b"in\xff",
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
    )
    assert done.stdout == b"in\xff\x00\xff"
    assert done.stderr.startswith(b"err")


@pytest.mark.parametrize(
    ("command", "status"),
    [("./no-such-program", 127), ("no-such-program", 127), ("./plain", 126), ("/", 126)],
)
def test_a_failed_start_is_reported_and_leaves_no_files(tmp_path, command, status):
    (tmp_path / "plain").write_text("hello")
    done = run_fathom("run", "--", command, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.startswith("fathom: ") and done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain"]


def test_a_script_without_a_first_line_is_run_by_sh(tmp_path):
    (tmp_path / "job").write_text("exit 7\n")
    (tmp_path / "job").chmod(0o755)
    assert raw_run(tmp_path, "./job").returncode == 7


def test_the_program_sees_its_own_environment_and_arguments(tmp_path):
    show = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv]))"
    done = raw_run(tmp_path, "python", "-c", show, "--raw", "-o", "--", "x", MINE="a b")
    seen, arguments = json.loads(done.stdout)
    assert arguments == ["-c", "--raw", "-o", "--", "x"]
    assert seen["MINE"] == "a b"
    assert not [name for name in seen if name.startswith(("FATHOM_RAW", "FATHOM_ADDED", "TEARDOWN"))]
    assert seen["PYTHONPATH"] == environment()["PYTHONPATH"]


def test_names_follow_the_script_and_never_overwrite(tmp_path):
    (tmp_path / "job.sh").write_text("exit 0")
    for _ in range(2):
        run_fathom("run", "--raw", "sh", "job.sh", cwd=tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.fathom")) == ["job-2.fathom", "job.fathom"]


def test_an_existing_output_is_replaced_only_when_asked(tmp_path):
    raw_run(tmp_path, "sh", "-c", "exit 1")
    refused = raw_run(tmp_path, "true")
    assert refused.returncode == 125 and "--replace" in refused.stderr
    assert record(tmp_path / "out.fathom", "end")["exit_status"] == 1
    run_fathom("run", "--raw", "--replace", "-o", "out.fathom", "true", cwd=tmp_path)
    assert record(tmp_path / "out.fathom", "end")["exit_status"] == 0


def test_a_failed_launch_replaces_nothing(tmp_path):
    raw_run(tmp_path, "sh", "-c", "exit 7")
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    refused = run_fathom("run", "--raw", "--replace", "-o", "out.fathom", "./program", cwd=tmp_path)
    assert refused.returncode in (125, 126, 127) and "Traceback" not in refused.stderr
    assert record(tmp_path / "out.fathom", "end")["exit_status"] == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.fathom", "program"]


@pytest.mark.parametrize(
    "make", [lambda path: NewFolder(path, True), lambda path: Writer(path, replace=True)]
)
def test_a_failed_creation_replaces_nothing(tmp_path, monkeypatch, make):
    """As on a disk that became full between the two."""
    raw_run(tmp_path, "sh", "-c", "exit 7")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", full)
        with pytest.raises(BadInputError, match="the disk is full"):
            make(tmp_path / "out.fathom")
    assert record(tmp_path / "out.fathom", "end")["exit_status"] == 7
    assert [path.name for path in tmp_path.iterdir()] == ["out.fathom"]


def test_a_path_that_cannot_be_created_is_refused_before_ceilings_are_measured(tmp_path):
    (tmp_path / "file").touch()

    def measured() -> dict:
        raise AssertionError("measured first")

    with pytest.raises(BadInputError, match="cannot be created: part of its path is a file"):
        recorder.record(["true"], recorder.Plan(), tmp_path / "file" / "out.fathom", machine=measured)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_replace_spares_other_folders(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").write_text("years")
    done = run_fathom("run", "--replace", "-o", "home", "true", cwd=tmp_path)
    assert done.returncode == 125 and (tmp_path / "home" / "thesis").exists()


def test_the_launch_is_noted_without_secrets(tmp_path):
    raw_run(tmp_path, "true", "--token", "S3cret99", "--lr", "1", NCCL_DEBUG="INFO", MY_TOKEN="S3cret99")
    text = (tmp_path / "out.fathom" / "raw" / "launch.json").read_text()
    launch = json.loads(text)
    assert "S3cret99" not in text
    assert launch["command"] == ["true", "--token", "<redacted>", "--lr", "1"]
    assert launch["environment"]["NCCL_DEBUG"] == "INFO"
    assert launch["machine"]["host"]["cpu"]["logical_cores"] == os.cpu_count()
    assert launch["start_ns"] <= record(tmp_path / "out.fathom", "end")["end_ns"] <= time.time_ns()


def test_the_plan_matches_the_request(tmp_path):
    options = (
        "--depth surface --steps 7 --settle 4 --step-on loader --at 9 --at 30 --on-slow-step --stop-after 50"
    )
    run_fathom("run", "--raw", "-o", "out.fathom", *options.split(), "true", cwd=tmp_path)
    assert record(tmp_path / "out.fathom", "plan") == {
        "depth": "surface",
        "steps": 7,
        "settle": 4,
        "step_on": "loader",
        "at": [9, 30],
        "on_slow_step": True,
        "stop_after": 50,
        "acts": {},
    }


def test_telemetry_runs_from_beginning_to_end(tmp_path):
    raw_run(tmp_path, "sleep", "0.5")
    lines = (tmp_path / "out.fathom" / "raw" / "telemetry.jsonl").read_text().splitlines()
    times = [json.loads(line)["time_ns"] for line in lines if json.loads(line)["device"] == -1]
    assert len(times) >= 3 and times == sorted(times)
    assert record(tmp_path / "out.fathom", "launch")["start_ns"] < times[0]
    assert record(tmp_path / "out.fathom", "end")["end_ns"] <= times[-1]


def test_isolated_python_is_warned_about_and_runs(tmp_path):
    done = raw_run(tmp_path, "python", "-I", "-c", "print(1)")
    assert done.stdout == "1\n" and "keeps the probe out" in done.stderr and done.returncode == 0


PATIENT = """
import os, signal, time
def leave(number, frame):
    os.write(1, b"got %d\\n" % number)
    os._exit(40 + number)
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(s, leave)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_a_signal_to_fathom_reaches_the_program_once(tmp_path, name):
    number = getattr(signal, f"SIG{name}")
    process = start_fathom("run", "--raw", "-o", "out.fathom", "python", "-c", PATIENT, cwd=tmp_path)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out == f"got {number.value}\n"
    assert process.returncode == 40 + number


def test_a_program_that_dies_of_ctrl_c_ends_fathom_so(tmp_path):
    # One process, because a shell that is forking its `sleep` when the signal comes leaves it behind.
    patient = "import time; print('ready', flush=True); time.sleep(60)"
    process = start_fathom("run", "--raw", "-o", "out.fathom", "python", "-c", patient, cwd=tmp_path)
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert record(tmp_path / "out.fathom", "end")["ended"] == "interrupted"


COUNTING = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
os.write(1, b"ready\\n")
until = time.monotonic() + 1.0
while time.monotonic() < until:
    time.sleep(0.02)
os.write(1, b"interrupts %d\\n" % len(got))
"""


def test_ctrl_c_in_a_terminal_is_not_doubled(tmp_path):
    """A new terminal, whose Ctrl-C reaches both processes at once."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        command = [PYTHON, "-m", "fathom", "run", "--raw", "-o", "out.fathom", "python", "-c", COUNTING]
        os.execve(PYTHON, command, environment())
    seen = b""
    while b"interrupts" not in seen:
        seen += os.read(terminal, 1000)
        if b"ready" in seen and b"^C" not in seen:
            os.write(terminal, b"\x03")
            while b"^C" not in seen:
                seen += os.read(terminal, 1000)
    assert b"interrupts 1" in seen
    os.waitpid(pid, 0)
    os.close(terminal)
    assert record(tmp_path / "out.fathom", "end")["ended"] == "interrupted"


def test_usr2_asks_for_a_timeline(tmp_path):
    process = start_fathom(
        "run", "--raw", "-o", "out.fathom", "sh", "-c", "echo ready; exec sleep 30", cwd=tmp_path
    )
    process.stdout.readline()
    process.send_signal(signal.SIGUSR2)
    wait_for((tmp_path / "out.fathom" / "raw" / "trigger").exists)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM


def test_a_process_left_behind_does_not_hold_fathom_up(tmp_path):
    began = time.monotonic()
    done = run_fathom(
        "run", "--raw", "-o", "out.fathom", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!", cwd=tmp_path
    )
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 0 and time.monotonic() - began < 300


STOPS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", CHILD])
print(child.pid, flush=True)
open("o.fathom/raw/stop", "w").write("3")
time.sleep(600)
"""


@pytest.mark.parametrize("option", [["--stop-after"], ["--stop-after", "3"], ["--stop-after", "recorded"]])
def test_stop_after_ends_the_whole_tree_with_success(tmp_path, option):
    program = STOPS.replace("CHILD", "'import time; time.sleep(600)'")
    done = run_fathom("run", "--raw", "-o", "o.fathom", *option, "--", "python", "-c", program, cwd=tmp_path)
    assert done.returncode == 0 and "--stop-after" in done.stderr
    assert record(tmp_path / "o.fathom", "end")["ended"] == "stopped"
    assert not psutil.pid_exists(int(done.stdout)) or psutil.Process(int(done.stdout)).status() == "zombie"


def test_without_stop_after_a_stop_file_means_nothing(tmp_path):
    done = raw_run(tmp_path, "sh", "-c", 'echo 3 > "$FATHOM_RAW/stop"; sleep 0.6; exit 5')
    assert done.returncode == 5


def test_light_start_up(tmp_path):
    heavy = "import sys; from fathom.cli import main; sys.argv = ARGV\ntry: main()\nexcept SystemExit: pass\n"
    heavy += "print([m for m in ('polars', 'numpy', 'msgspec', 'isal', 'torch') if m in sys.modules])"
    for words in (["--help"], ["run", "--raw", "-o", "out.fathom", "true"]):
        code = heavy.replace("ARGV", repr(["fathom", *words]))
        done = subprocess.run(
            [PYTHON, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_missing_table_libraries_leave_raw_records(tmp_path):
    hidden = "import sys, importlib.util as u; f = u.find_spec; "
    hidden += "u.find_spec = lambda n, *a: None if n == 'polars' else f(n, *a); "
    hidden += "sys.argv = ['fathom', 'run', '-o', 'out.fathom', 'sh', '-c', 'exit 4']; "
    hidden += "from fathom.cli import main; main()"
    done = subprocess.run(
        [PYTHON, "-c", hidden], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 4
    assert "lacks polars" in done.stderr and "fathom import out.fathom" in done.stderr
    assert record(tmp_path / "out.fathom", "end")["exit_status"] == 4


HONEST = CHEATS / "honest.py"


@pytest.mark.parametrize(
    "words",
    [
        "machine",
        "machine check",
        "doctor",
        "lab list",
        "lab show coalescing",
        "lab run coalescing --json",
        "lab run coalescing",
        f"prove {HONEST}:baseline {HONEST}:baseline --budget 0.1",
    ],
)
def test_target_commands_need_no_table_library(tmp_path, words):
    """It is not installed there: the same command ends in the same way without it."""
    stand_in = tmp_path / "without" / "polars.py"
    stand_in.parent.mkdir()
    stand_in.write_text("raise ModuleNotFoundError('hidden', name='polars')")
    # A warm process has imported both already.
    (stand_in.parent / "sitecustomize.py").write_text(
        "import sys\nfor name in list(sys.modules):\n"
        "    if name.partition('.')[0] in ('polars', 'fathom'):\n        del sys.modules[name]\n"
    )
    lacking = os.pathsep.join([str(stand_in.parent), SOURCE])
    ends = [
        run_fathom(*words.split(), cwd=tmp_path, FATHOM_HOME=str(tmp_path / "home"), PYTHONPATH=path)
        for path in (lacking, SOURCE)
    ]
    assert "unexpected" not in ends[0].stderr
    assert ends[0].returncode == ends[1].returncode
