"""Examinations of the running program, one at a time, each in a child process (`fathom.watch.examining`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import msgspec

from fathom.analysis.live import Insight, Slowdown

SECONDS = 600  # an examination that takes longer is given up
PASSED = "the steps were fast again when the timeline was recorded"
_QUIET = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Examiner:
    """Runs one examination at a time. `spawn` starts a command and returns its process; tests replace it."""

    def __init__(self, spawn: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen) -> None:
        self._spawn = spawn
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._until = 0.0
        self._result: type[Insight | Slowdown] = Insight

    @property
    def busy(self) -> bool:
        """Whether an examination runs."""
        return self._process is not None

    def examine(self, folder: Path, now_s: float, until_ns: int = 0) -> None:
        """Start to examine the steps until a time; 0: until now."""
        self._start(Insight, folder, now_s, until_ns)

    def compare(self, folder: Path, now_s: float, onset_ns: int) -> None:
        """Start to compare the steps since a time with those before it."""
        self._start(Slowdown, folder, now_s, onset_ns)

    def _start(self, result: type[Insight | Slowdown], folder: Path, now_s: float, ns: int) -> None:
        words = [result.__name__.lower(), str(folder), str(ns)]
        self._result = result
        self._output, self._until = TemporaryFile(), now_s + SECONDS  # noqa: SIM115 - the result closes it
        self._process = self._spawn(
            [sys.executable, "-m", "fathom.watch.examining", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        )

    def result(self, now_s: float) -> Insight | Slowdown | None:
        """Return the result; None while it runs, and if it failed."""
        if self._process is None or self._output is None:
            return None
        if self._process.poll() is None and now_s < self._until:
            return None
        self._end()
        self._output.seek(0)
        with self._output as file:
            try:
                return msgspec.json.decode(file.read(), type=self._result)
            except msgspec.DecodeError:
                return None

    def close(self) -> None:
        """End a running examination."""
        if self._process is not None:
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process = None
