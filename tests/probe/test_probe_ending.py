"""A program that is ended because all was recorded says nothing of it; its own errors it tells."""

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
    ("thread", "main", "told"),
    [
        ("ConnectionResetError(104, 'reset by peer')", "KeyboardInterrupt", []),
        ("EOFError", "KeyboardInterrupt", []),
        ("KeyboardInterrupt", "ValueError('mine')", ["mine"]),
        ("ValueError('its own')", "KeyboardInterrupt", ["its own"]),
    ],
)
def test_only_what_is_not_the_interruption_is_told(thread: str, main: str, told: list[str]) -> None:
    program = PROGRAM.format(thread=thread, main=main)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode and done.stderr.count("Traceback") == len(told)
    assert all(word in done.stderr for word in told)
