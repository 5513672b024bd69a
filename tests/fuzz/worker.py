"""A process that runs commands of the fuzzer one after the other: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
import traceback
import unicodedata
from pathlib import Path
from typing import Any

os.environ["FATHOM_NO_CACHE"] = "1"
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)


def main() -> None:
    """Run each command of standard input, and answer on the original standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


def run(words: list[str]) -> dict[str, Any]:
    """Run one command in this process; `wrong` says what no command may do, None if it did nothing of it."""
    from typer.testing import CliRunner

    from fathom.cli import app

    begun = time.perf_counter()
    done = CliRunner().invoke(app, words)
    seconds = time.perf_counter() - begun
    return {
        "status": done.exit_code,
        "seconds": seconds,
        "peak_gib": _peak_gib(),
        "wrong": _wrong(done, words[0]),
    }


def _peak_gib() -> float:
    """Return the largest resident memory of this process or its children, without that of its parent."""
    own = _PEAK.search(Path("/proc/self/status").read_text())
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(int(own[1]) if own else 0, children) / 2**20


def _wrong(done: Any, command: str) -> str | None:
    from fathom.cli.console import explain

    error = done.exception
    if error is not None and not isinstance(error, SystemExit) and "unexpected" in explain(error):
        frames = traceback.extract_tb(done.exc_info[2])
        mine = [frame for frame in frames if "/fathom/" in frame.filename] or frames
        place = f"{mine[-1].filename.rpartition('/fathom/')[2]}:{mine[-1].lineno}"
        return f"{type(error).__name__} at {place}: {str(error)[:200]}"
    if error is not None and not isinstance(error, SystemExit):
        return None  # main() prints one sentence
    lines = done.stderr.count("\n")
    judged = command == "gate" and done.exit_code == 1 and not lines  # a budget is exceeded
    if done.exit_code not in (0, 2) and lines != 1 and not judged:  # 2: the command line itself is wrong
        return f"{lines} lines on standard error: {done.stderr[:200]!r}"
    strange = {character for character in done.stdout + done.stderr if _is_control(character)}
    return f"control characters {sorted(strange)} on the terminal" if strange else None


def _is_control(character: str) -> bool:
    return (
        character not in "\n\t"
        and unicodedata.category(character) in ("Cc", "Cf")
        and character not in "\u200d"
    )


if __name__ == "__main__":
    main()
