"""The processes of a proof, and the results fetched from them."""

from __future__ import annotations

import json
import os
import re
import select
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import disk_usage
from typing import Any

from fathom.errors import BadInputError
from fathom.referee import address
from fathom.referee.compare.decode import Saved, read
from fathom.referee.gate import StoppedError, TooLongError, Turn
from fathom.referee.launching import Launcher, Spawn, Started
from fathom.referee.pair import Pair, place_of
from fathom.referee.protocol import Spec
from fathom.units import NS_PER_S

BASELINE, CANDIDATE = "baseline", "candidate"
SHARED_MEMORY, ROOM = Path("/dev/shm"), 32 * 2**30
_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.M)


class Sides:
    """Starts the sides of a pair. Results are exchanged through a temporary folder."""

    def __init__(
        self, pair: Pair, patience_s: float, launcher: Launcher | None = None, turn: Turn | None = None
    ) -> None:
        self.pair, self.patience_s, self.turn = pair, patience_s, turn or Turn()
        self._launcher = launcher or Spawn()
        self._folder = tempfile.TemporaryDirectory(prefix="fathom-", dir=_quickest())
        self._numbers = count()
        self.key: list[str] | None = None  # of the baseline's code
        self._preload = preloads(pair)

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def start(self, side: str) -> SideProcess:
        """Start a process of the baseline or the candidate."""
        target = self.pair.plain if side == BASELINE else self.pair.tuned
        wanted = {"baseline": self.key} if side == CANDIDATE and self.key else {}
        return self.worker({**self.spec(str(target)), "wanted": wanted})

    def worker(self, spec: Spec) -> SideProcess:
        """Start a process for `spec`."""
        return SideProcess(spec, self.patience_s, self._launcher, self.turn)

    def spec(self, target: str, *, upcast: bool = False) -> Spec:
        """Return the specification of a process for `target`; `upcast`: compute in float64."""
        pair = self.pair
        return {
            "target": target,
            "inputs": str(pair.inputs),
            "variants": place_of(pair.variants),
            "work": place_of(pair.work),
            "preload": self._preload,
            "upcast": upcast,
        }

    def compute(self, worker: SideProcess, seed: int, variant: str | None = None) -> Saved:
        """Call once with the inputs of `seed` and fetch the result."""
        worker.ask("place", seeds=[seed], variant=variant)
        worker.ask("go", latency="included")
        return self.save(worker, 0, seed, variant)

    def save(self, worker: SideProcess, index: int, seed: int, variant: str | None = None) -> Saved:
        """Fetch the result of one of the latest calls."""
        return self._fetched(worker, index=index, seed=seed, variant=variant)

    def held_result(self, worker: SideProcess, known: Saved | None = None) -> Saved:
        """Fetch the result that the process holds; return `known` instead if the bytes are equal.

        The process does not learn the result that its own is compared with.
        """
        answer = worker.ask("fingerprint")
        if known is not None and answer is not None and answer == known.fingerprint:
            return known
        return replace(self._fetched(worker), fingerprint=answer)

    def _fetched(self, worker: SideProcess, **which: Any) -> Saved:
        path = Path(self._folder.name) / f"{next(self._numbers)}.bin"
        answer = worker.ask("save", path=str(path), **which)
        with self.turn.computing():
            saved = read(answer, path)
            path.unlink()
        return saved


def _quickest() -> Path | None:
    """Return a folder in memory with enough free space; None for the default folder."""
    try:
        return SHARED_MEMORY if disk_usage(SHARED_MEMORY).free >= ROOM else None
    except OSError:
        return None


@contextmanager
def blaming_baseline() -> Iterator[None]:
    """Report failures of the baseline as bad input. Raises BadInputError."""
    try:
        yield
    except SideError as error:
        raise BadInputError(f"The baseline cannot be measured: {error}.") from None


def preloads(pair: Pair) -> Sequence[str]:
    """Return `["torch"]` if one of the files mentions it, so that both sides preload the same; else []."""
    places = {address.split(str(where))[0] for where in (pair.plain, pair.tuned, pair.inputs)}
    files = [Path(place) for place in places if place.endswith(".py")]
    return ["torch"] if any(_TORCH.search(file.read_text(errors="replace")) for file in files) else []


# One process: start it, query it with a timeout, end it
LONGEST_S = 3600.0  # longest single wait, because select() rejects infinity


class SideError(Exception):
    """A side raised, died or hung. `code` is the code of a refusal, the message one clause."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class HangsError(SideError):
    """A side did not answer in time."""


class SideProcess:
    """Context manager with one process and separate pipes, so that the side's own output does not interfere.

    `spec` is the argument of `child.side.Side`. The process only works while `turn` allows it. Raises
    SideError, TooLongError, StoppedError, and BadInputError if a function does not exist.
    """

    def __init__(
        self,
        spec: Spec,
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
