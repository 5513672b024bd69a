"""The parent's handle of one side's process: start it, query it with a timeout, end it."""

from __future__ import annotations

import json
import os
import select
import tempfile
from contextlib import suppress
from typing import Any

from fathom.errors import BadInputError
from fathom.referee.gate import StoppedError
from fathom.referee.launching import Launcher, Spawn, Started
from fathom.referee.turn import TooLongError, Turn
from fathom.units import NS_PER_S

LONGEST_S = 3600.0  # longest single wait, because select() rejects infinity


class SideError(Exception):
    """A side raised, died or hung. `code` is the code of a refusal, the message one clause."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class HangsError(SideError):
    """A side did not answer in time."""


class SideProcess:
    """A context with one process and separate pipes, so that the side's own output does not interfere.

    `spec` is the argument of `child.side.Side`. The process works only while `turn` admits it. Raises
    SideError, TooLongError, StoppedError, and BadInputError if a function does not exist.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        patience_s: float,
        launcher: Launcher | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._spec, self._patience_s = spec, patience_s
        self._launcher, self._turn = launcher or Spawn(), turn or Turn()
        self.process: Started | None = None
        self._read = b""

    def __enter__(self) -> SideProcess:
        with self._turn.shared():
            try:
                self._turn.started(self._start().pid)
                self.key: list[str] | None = self._receive()
            except BaseException:
                self._end()
                raise
        return self

    def _start(self) -> Started:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        there, self._ask = os.pipe()
        self._answer, back = os.pipe()
        try:
            self.process = started = self._launcher.start(self._spec, there, back, self._errors)
            return started
        finally:
            os.close(there)
            os.close(back)
            if self.process is None:
                self._close()

    def ask(self, do: str, **more: Any) -> Any:
        """Send a request and return the answer; `waited_ns` is its duration by this process's clock."""
        with self._turn.shared(self.process.pid if self.process else None):
            if self.process is None:
                raise SideError("raises", "its process ended")
            began = self._turn.now_ns()
            with suppress(BrokenPipeError):
                os.write(self._ask, json.dumps({"do": do, **more}).encode() + b"\n")
            try:
                answer = self._receive()
            except (HangsError, TooLongError, StoppedError):
                self._end()  # before others take samples beside its remaining work
                raise
            self.waited_ns = self._turn.now_ns() - began
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
        until = self._turn.now_ns() + NS_PER_S * self._patience_s
        while b"\n" not in self._read:
            all_left = self._turn.left_s()  # first, so that exceeding the proof's limit is reported as that
            left = (until - self._turn.now_ns()) / NS_PER_S
            if left <= 0:
                raise HangsError("hangs", f"it gave no answer within {self._patience_s:g} s")
            data = self._next(min(left, all_left))
            if data is not None:
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _next(self, seconds: float) -> bytes | None:
        ready = select.select([self._answer, *self._turn.closing], [], [], min(seconds, LONGEST_S))[0]
        if set(ready) & set(self._turn.closing):
            raise StoppedError
        data = os.read(self._answer, 1 << 16) if ready else None
        if data == b"":
            raise SideError("raises", self._ending())
        return data

    def _ending(self) -> str:
        how = self.process.ended() if self.process else ""
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return how + (f": {lines[-1][:200]}" if lines else "")

    def __exit__(self, *_: object) -> None:
        with self._turn.leaving():
            self._end()

    def _end(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        process.end()
        self._close()

    def _close(self) -> None:
        for end in (self._ask, self._answer):
            os.close(end)
        self._errors.close()
