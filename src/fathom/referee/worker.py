"""The process of one side seen from the parent: started fresh, asked with patience, ended."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
from contextlib import suppress
from typing import Any

from fathom.errors import BadInputError
from fathom.referee.launching import Launcher, Spawn
from fathom.timing import Clock, SystemClock


class SideError(Exception):
    """A side that raised, died or hung; `code` is the reason, the text one clause."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Worker:
    """A context: one process of its own, with pipes of its own, so that what a side prints is its own affair.

    `spec` is what `child.side.Side` takes. Raises SideError, and BadInputError where a function is not there.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        patience_s: float,
        launcher: Launcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._patience_s, self._clock = patience_s, clock or SystemClock()
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        there, self._ask = os.pipe()
        self._answer, back = os.pipe()
        try:
            self.process = (launcher or Spawn()).start(spec, there, back, self._errors)
        finally:
            os.close(there)
            os.close(back)
        self._read = b""

    def __enter__(self) -> Worker:
        try:
            self.about: dict[str, Any] = self._receive()
        except BaseException:
            self.__exit__()
            raise
        return self

    def ask(self, do: str, **more: Any) -> Any:
        """The answer to one request, and how long it took by this process's clock in `waited_ns`."""
        began = self._clock.now_ns()
        with suppress(BrokenPipeError):
            os.write(self._ask, json.dumps({"do": do, **more}).encode() + b"\n")
        answer = self._receive()
        self.waited_ns = self._clock.now_ns() - began
        return answer

    def _receive(self) -> Any:
        answer = json.loads(self._line())
        if "error" not in answer:
            return answer["ok"]
        error = answer["error"]
        text = f"{error['type']}: {error['text']}" if error["text"] else error["type"]
        if error["bad_input"]:
            raise BadInputError(error["text"])
        raise SideError("raises", f"it raised {text} ({error['where']})")

    def _line(self) -> bytes:
        until = self._clock.now_ns() + 1e9 * self._patience_s
        while b"\n" not in self._read:
            left = (until - self._clock.now_ns()) / 1e9
            if left <= 0 or not select.select([self._answer], [], [], left)[0]:
                raise SideError("hangs", f"it gave no answer within {self._patience_s:g} s")
            data = os.read(self._answer, 1 << 16)
            if not data:
                raise SideError("raises", self._ending())
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _ending(self) -> str:
        how = self.process.ended()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return how + (f": {lines[-1][:200]}" if lines else "")

    def __exit__(self, *_: object) -> None:
        for end in (self._ask, self._answer):
            with suppress(OSError):
                os.close(end)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with everything that it started
        self.process.ended()
        self._errors.close()
