"""Run commands under the limits that hold for any input: time, memory, one sentence, no signal."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, prepare
from tests.support.running import environment

SECONDS, GIB = 30.0, 2.0  # per command
PATIENCE = 10  # times as long on the clock, if a busy machine gives the command no processor
STUCK_S = 90.0  # on the clock without any processor time, as at a FIFO
LOOK_S, FAR_TOO_MUCH_GIB = 1.0, 4.0  # between looks at a command; it is killed at this before it ends
RESTART = 150  # commands of one worker: polars and the allocator keep memory


def failure(commands: Commands, case: Case, folder: Path) -> str | None:
    """Run the commands of a case; return what none may do, None if all were fine."""
    for words in prepare(case, folder / "case"):
        answer = commands.run(*words)
        if wrong := answer["wrong"] or _unreadable(commands, words, answer["status"]):
            return f"{words[0]}: {wrong}"
    return None


def _unreadable(commands: Commands, words: list[str], status: int) -> str | None:
    """Return what is wrong with the sounding that an import wrote; None if a report can be made of it."""
    if words[0] != "import" or status:
        return None
    answer = commands.run("report", words[-1], "--json")
    return answer["wrong"] or ("its result cannot be reported" if answer["status"] else None)


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
        wrong = _wait(worker)
        line = "" if wrong else worker.stdout.readline()
        if not line:
            self.close()
            return {"wrong": wrong or "it died", "status": None}
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


def _wait(worker: subprocess.Popen[str]) -> str | None:
    """Wait for the worker's answer; return None, or the limit that the command passed meanwhile."""
    before, began = _used(worker.pid)[0], time.monotonic()
    while not select.select([worker.stdout], [], [], LOOK_S)[0]:
        seconds, gib = _used(worker.pid)
        if gib > FAR_TOO_MUCH_GIB:
            return f"it took {gib:.1f} GiB"
        if seconds - before >= SECONDS or time.monotonic() - began >= PATIENCE * SECONDS:
            return f"it ran for more than {SECONDS:.0f} s"
        if time.monotonic() - began >= STUCK_S and seconds == before:
            return f"it did nothing for {STUCK_S:.0f} s"
    return None


def _used(pid: int) -> tuple[float, float]:
    """Return processor seconds and resident GiB of a process and its children; zeros if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0, 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    gib = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**30
    parts = [(own, gib), *(_used(int(child)) for child in children)]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


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
