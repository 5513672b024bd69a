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

from fathom.analysis.live import Change, Entry, Insight

SECONDS = 600  # an examination that takes longer is given up
PASSED = "the steps were fast again when the timeline was recorded"
CLOSE, SHARE = 0.01, 0.1  # of the step, of its change: findings whose cost grew by less are not named
_QUIET = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Examiner:
    """Runs one examination at a time. `spawn` starts a command and returns its process; tests replace it."""

    def __init__(self, spawn: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen) -> None:
        self._spawn = spawn
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._until = 0.0

    @property
    def busy(self) -> bool:
        """Whether an examination runs."""
        return self._process is not None

    def start(self, folder: Path, now_s: float, since_ns: int = 0, until_ns: int = 0) -> None:
        """Examine the steps between two times; 0: without this limit."""
        words = [str(folder), str(since_ns), str(until_ns)]
        self._output, self._until = TemporaryFile(), now_s + SECONDS  # noqa: SIM115 - the result closes it
        self._process = self._spawn(
            [sys.executable, "-m", "fathom.watch.examining", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        )

    def result(self, now_s: float) -> Insight | None:
        """Return the finished insight; None while it runs, and if it failed."""
        if self._process is None or self._output is None:
            return None
        if self._process.poll() is None and now_s < self._until:
            return None
        self._end()
        self._output.seek(0)
        with self._output as file:
            try:
                return msgspec.json.decode(file.read(), type=Insight)
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


def change(before: Insight, after: Insight) -> Change:
    """Return what changed between two insights: entries that sum to the change of the step, and findings."""
    if before.step_ms is None or after.step_ms is None:
        return Change(0.0, 0.0, why_not="no clean steps were recorded before and since")
    result = Change(before.step_ms, after.step_ms)
    grown = after.step_ms - before.step_ms
    if grown <= 0:
        result.why_not = PASSED
        return result
    costs = {(known.id, known.title): known.gain_ms or 0.0 for known in before.findings}
    for finding in after.findings:
        more = (finding.gain_ms or 0.0) - costs.get((finding.id, finding.title), 0.0)
        if more > max(CLOSE * after.step_ms, SHARE * grown):
            result.findings.append(finding)
    if not before.ledger or not after.ledger:
        result.why_not = f"no ledger to compare: {(before if not before.ledger else after).abstained}"
        return result
    result.entries = _differences(before.ledger, after.ledger)
    return result


def _differences(before: list[Entry], after: list[Entry]) -> list[Entry]:
    """Return after minus before for each row, the largest growth first."""
    sums: dict[tuple[str, str], float] = {}
    for sign, rows in ((-1, before), (1, after)):
        for row in rows:
            key = (row.entry, row.detail)
            sums[key] = sums.get(key, 0.0) + sign * row.ms
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return [Entry(entry, detail, ms) for (entry, detail), ms in ordered if ms]
