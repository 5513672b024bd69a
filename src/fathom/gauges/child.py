"""The parent's handle on a measuring process: start it, read its records, end it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

GRACE_S = 40.0  # time for the ranks of a collective to end
END_S = 10.0  # time for a process to exit after it closed its output

Record = dict[str, Any]  # a line of JSON


class Child:
    """Context manager that runs `python -m fathom.gauges JOB`, with `environment` added to this process's."""

    def __init__(self, job: str, environment: Mapping[str, str], module: str = "fathom.gauges") -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        # Keep a file called torch.py in the user's working directory from shadowing torch.
        surroundings = {**os.environ, "PYTHONSAFEPATH": "1", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=surroundings,
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        output: IO[bytes] = self.process.stdout  # type: ignore[assignment]
        for line in output:
            self._lines.put(line)
        self._lines.put(None)

    def next(self, patience_s: float) -> Record | None:
        """Return the next record, or None at the end. Raises TimeoutError after `patience_s` without one."""
        while True:
            try:
                line = self._lines.get(timeout=patience_s)
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_S)
                return None
            with suppress(ValueError):  # a line truncated by the process's death
                record = json.loads(line)
                if isinstance(record, dict):
                    return record

    def ending(self) -> str:
        """Return how the process ended, in one clause: its signal, or its status and last line of output."""
        status = self.process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
            return f"its process was killed by {name}"
        return f"its process exited with status {status}" + (f": {lines[-1][:200]}" if lines else "")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_S)
        self._errors.close()


def records(child: Child, patience: Mapping[str, float]) -> Iterator[Record]:
    """Yield records until the end. Raises TimeoutError if one takes longer than its gauge's `patience`."""
    wait = max(patience.values(), default=60.0)
    while (record := child.next(wait)) is not None:
        wait = patience.get(str(record.get("begin")), wait)
        yield record
