"""Test whether stacks of a given Python can be sampled here, by reading the stack of a child process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from fathom.probe.frames import Layout, Memory
from fathom.recorder.stacks.codes import Codes, TornError
from fathom.recorder.stacks.walk import Walker

CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import asdict
from fathom.probe.frames import NotHereError, calibrate, thread_state
def rehearsed():
    try:
        print(json.dumps({"layout": asdict(calibrate()), "state": thread_state()}), flush=True)
    except NotHereError as why:
        print(json.dumps({"why": str(why)}), flush=True)
    sys.stdin.readline()
rehearsed()
"""
PACKAGES = str(Path(__file__).parents[3])


def rehearse(python: str) -> str | None:
    """Return why the frames of this Python cannot be read from outside, or None."""
    try:
        child = subprocess.Popen(
            [python, "-c", CHILD, PACKAGES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError as error:
        return f"{python} does not start ({error.strerror})"
    assert child.stdout is not None
    try:
        return _read(child.pid, json.loads(child.stdout.readline() or "{}"))
    except (ValueError, OSError, TornError) as error:
        return f"the frames of {python} could not be read ({error or type(error).__name__})"
    finally:
        child.communicate("\n")


def _read(pid: int, answer: dict) -> str | None:
    if "layout" not in answer:
        return str(answer.get("why", "the probe does not start in this Python"))
    memory, layout = Memory(pid), Layout(**answer["layout"])
    chain = Walker(memory, layout).walk(answer["state"])
    codes = Codes(memory, layout)
    frames = [codes.frame(chain[i], chain[i + 1]) for i in range(0, len(chain), 2)] if chain else []
    memory.close()
    known = any(frame is not None and frame[0] == "rehearsed" for frame in frames)
    return None if known else "its frames differ from those expected"
