"""A program ended by `--stop-after` does not print the interruption, only its other errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fathom.probe import ELASTIC
from tests.support.running import environment

PROGRAM = """
import atexit, sys, threading
from fathom.probe.ending import end_quietly
end_quietly(sys.argv[1])
atexit.register(print, "exit handlers ran")
def fails(): raise {thread}
other = threading.Thread(target=fails)
other.start()
other.join()
raise {main}
"""


@pytest.mark.parametrize(
    ("thread", "main", "expected"),
    [
        ("ConnectionResetError(104, 'reset by peer')", "KeyboardInterrupt", []),
        ("EOFError", "KeyboardInterrupt", []),
        ("KeyboardInterrupt", "ValueError('mine')", ["mine"]),
        ("ValueError('its own')", "KeyboardInterrupt", ["its own"]),
    ],
)
def test_only_other_errors_than_the_interruption_are_reported(
    tmp_path: Path, thread: str, main: str, expected: list[str]
) -> None:
    (tmp_path / "stop").touch()
    done = run(tmp_path, thread, main)
    assert done.returncode and done.stderr.count("Traceback") == len(expected)
    assert all(word in done.stderr for word in expected)


@pytest.mark.parametrize("main", ["KeyboardInterrupt", "RuntimeError('Connection closed by peer')"])
def test_a_worker_of_torchrun_succeeds_if_it_was_asked_to_end(tmp_path: Path, main: str) -> None:
    (tmp_path / "stop").touch()
    done = run(tmp_path, "EOFError", main, {ELASTIC: "none"})
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "exit handlers ran\n")


LOSES_PEERS = """
import os, signal, sys
from fathom.probe.ending import end_quietly
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
end_quietly(sys.argv[1])
of_fathom = sys.excepthook
def of_torch(*failure):  # the interrupt comes late: an error already ends the program
    os.kill(os.getpid(), signal.SIGINT)
    of_fathom(*failure)
sys.excepthook = of_torch
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True: pass
except KeyboardInterrupt:
    raise RuntimeError("Connection closed by peer") from None
"""


def test_an_interrupt_that_comes_after_the_loss_of_peers_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    program = [sys.executable, "-c", LOSES_PEERS, str(tmp_path)]
    known = environment(**{ELASTIC: "none"})
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=known)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("asked", [True, False])
def test_a_worker_of_torchrun_fails_by_itself(tmp_path: Path, asked: bool) -> None:
    if asked:
        (tmp_path / "stop").touch()
    done = run(
        tmp_path, "EOFError", "ValueError('mine')" if asked else "RuntimeError('mine')", {ELASTIC: "none"}
    )
    assert done.returncode == 1 and "mine" in done.stderr and done.stdout == "exit handlers ran\n"


def run(
    raw: Path, thread: str, main: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PROGRAM.format(thread=thread, main=main), str(raw)]
    known = environment(**(variables or {}))
    return subprocess.run(program, capture_output=True, text=True, check=False, env=known)
