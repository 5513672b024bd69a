"""The recording of the program as it is, whose findings decide what is tried first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fathom.errors import BadInputError, last_line
from fathom.referee import running
from fathom.tuner.sandbox import Scratch

SHARE, FINISH_S = 0.2, 120.0  # of the budget, and seconds to write a recording that was ended
EARLY = "The recording was ended early, so findings may be missing."


def record(
    command: list[str], path: Path, scratch: Scratch, step_on: str, around: Mapping[str, str], budget_s: float
) -> list[str]:
    """Record the program at `path`, and return notes on it. Raises BadInputError if it cannot be recorded."""
    scratch.renew()
    part, output = path.with_name("recording.fathom"), path.with_name("output")
    fathom = [sys.executable, "-m", "fathom", "run", "-o", str(part), "--replace", "--no-measure"]
    fathom += ["--quiet", "--stop-after", "recorded", "--step-on", step_on, "--"]
    with open(output, "w+") as said:  # noqa: PTH123
        files = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said}
        words = [*fathom, *scratch.words(command)]
        with running(words, cwd=scratch.cwd, env=dict(around), **files) as process:
            status, notes = _waited(process, part, budget_s)
    if status or not part.exists():
        last = last_line(output.read_text(errors="replace"))
        raise BadInputError(f"The program ended with status {status} while it was recorded: {last[:300]}")
    part.rename(path)
    return notes


def _waited(process: subprocess.Popen[bytes], recording: Path, budget_s: float) -> tuple[int, list[str]]:
    """Wait for the recording, and return its status; end it early if it takes too much of the budget."""
    least_s = max(30.0, SHARE * budget_s)
    try:
        return process.wait(least_s), []
    except subprocess.TimeoutExpired:
        with suppress(OSError):  # asks to end the program; there is no such folder while Fathom writes
            (recording / "raw" / "stop").touch()
    try:
        process.wait(FINISH_S)
    except subprocess.TimeoutExpired:
        minutes = 2 * (least_s + FINISH_S) / SHARE / 60
        raise BadInputError(
            f"The program could not be recorded in {least_s + FINISH_S:.0f} s; give --budget {minutes:.0f}m."
        ) from None
    return 0, [EARLY]
