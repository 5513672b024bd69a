"""Run `fathom` as a user does, in a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fathom
from tests.support import warm

SOURCE = str(Path(fathom.__file__).parent.parent)
PYTHON = sys.executable
HOME = str(Path(tempfile.gettempdir()) / "fathom-tests-remember-nothing")  # never made


def environment(**more: str) -> dict[str, str]:
    """This process's environment with Fathom importable, and `python` the one that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FATHOM_")}
    kept.pop("PYTHONUNBUFFERED", None)  # Python then loses what a closed pipe cut off
    path = os.pathsep.join([str(Path(PYTHON).parent), kept.get("PATH", "")])
    return {
        **kept,
        "PATH": path,
        "PYTHONPATH": SOURCE,
        "OMP_NUM_THREADS": "1",
        "FATHOM_MEASURE": "0",
        "FATHOM_HOME": HOME,
        **more,
    }


def fathom_command(*words: object) -> list[str]:
    """The command line of `fathom WORDS`."""
    return [PYTHON, "-m", "fathom", *map(str, words)]


def run_fathom(
    *words: object, cwd: Path, timeout: float = 120, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `fathom WORDS` to its end."""
    return warm.run(("-m", "fathom", *words), environment(**env), cwd, timeout, warm.FATHOM)


def start_fathom(*words: object, cwd: Path, **env: str) -> subprocess.Popen[str]:
    """Start `fathom WORDS` in a new process group that takes Ctrl-C, as a shell does.

    Without a handler here, the process would inherit that a suite in the background ignores Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        fathom_command(*words),
        cwd=cwd,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def record(folder: Path, name: str) -> Any:
    """One of the JSON files that the parent leaves in `raw/`."""
    return json.loads((folder / "raw" / f"{name}.json").read_text())


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
