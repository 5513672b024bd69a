"""A program ended by `--stop-after` does not print the interruption, only its other errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
from fathom.probe.ending import end_quietly
end_quietly()
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
    thread: str, main: str, expected: list[str]
) -> None:
    program = PROGRAM.format(thread=thread, main=main)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode and done.stderr.count("Traceback") == len(expected)
    assert all(word in done.stderr for word in expected)
