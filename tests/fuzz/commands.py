"""Run commands under the limits that hold for any input: time, memory, one sentence, no signal."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, prepare
from tests.support.running import environment

SECONDS, GIB = 30.0, 2.0  # per command
RESTART = 150  # commands of one worker: polars and the allocator keep memory


def failure(commands: Commands, case: Case, folder: Path) -> str | None:
    """Run the commands of a case; return what none may do, None if all were fine."""
    for words in prepare(case, folder / "case"):
        if wrong := commands.run(*words)["wrong"]:
            return f"{words[0]}: {wrong}"
    return None


class Commands:
    """A worker process that is started again after it died or was killed."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[str] | None = None
        self._left = 0
        atexit.register(self.close)

    def run(self, *words: str) -> dict[str, Any]:
        """Run `fathom WORDS`. `wrong` in the answer is None, or says which limit the command broke."""
        if self._worker is None or self._left == 0:
            self.close()
            self._left = RESTART
        self._left -= 1
        worker = self._worker = self._worker or _start()
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(json.dumps(words) + "\n")
        worker.stdin.flush()
        ready, _, _ = select.select([worker.stdout], [], [], SECONDS)
        line = worker.stdout.readline() if ready else ""
        if not line:
            self.close()
            return {"wrong": "it died" if ready else f"it ran for more than {SECONDS:.0f} s"}
        answer: dict[str, Any] = json.loads(line)
        if answer["peak_gib"] > GIB:
            self.close()
            answer["wrong"] = answer["wrong"] or f"it took {answer['peak_gib']:.1f} GiB"
        return answer

    def close(self) -> None:
        """Kill the worker."""
        if self._worker is not None:
            os.killpg(self._worker.pid, signal.SIGKILL)  # with the children of its commands
            self._worker.wait()
            self._worker = None


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        start_new_session=True,
    )
