"""Proofs of whole commands: each run is a fresh process, timed from start to end, in the order A B B A."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from fathom.errors import BadInputError
from fathom.referee.blocks import Block, Seeds
from fathom.referee.compare.decode import Saved
from fathom.referee.launching import running
from fathom.referee.metrics import Metrics, differences, read_metrics
from fathom.referee.outlook import conclude
from fathom.referee.pair import Command, Pair
from fathom.referee.race import comparisons, race
from fathom.referee.settings import Settings
from fathom.referee.sides import BASELINE, CANDIDATE, SideError
from fathom.referee.verdict import Refusal, Verdict
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

NOTHING = "nothing-compared"
INSTEAD = f"--metrics names a file that both write; --allow {NOTHING} races them without"
LAST = 300  # bytes of a failing program's output that are searched for its message


@dataclass
class Programs:
    """Times commands, and keeps the metrics of each run."""

    commands: dict[str, list[str]]
    metrics: Path | None
    patience_s: float
    clock: Clock = field(default_factory=SystemClock)
    seen: dict[str, list[Metrics]] = field(default_factory=dict)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Run the command once. Raises SideError if it fails, hangs or leaves no metrics."""
        _cleared(self.metrics)
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            began = self.clock.now_ns()
            self._run(self.commands[side], said.fileno())
            ns = self.clock.now_ns() - began
        if self.metrics is not None:
            self.seen.setdefault(side, []).append(read_metrics(self.metrics))
        return Block({"": [float(ns)]})

    def _run(self, command: list[str], said: int) -> None:
        with running(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
            try:
                status = process.wait(self.patience_s)
            except subprocess.TimeoutExpired:
                raise SideError("hangs", f"it did not end within {self.patience_s:g} s") from None
        if status:
            size = os.lseek(said, 0, os.SEEK_END)
            os.lseek(said, max(0, size - LAST), os.SEEK_SET)
            lines = os.read(said, LAST).decode(errors="replace").strip().splitlines() or ["no message"]
            raise SideError("raises", f"it ended with status {status}: {lines[-1]}")


def prove_whole(pair: Pair, settings: Settings, clock: Clock | None = None) -> Verdict:
    """Prove a pair of commands, which run without a shell. Raises BadInputError."""
    clock = clock or SystemClock()
    began = clock.now_ns()
    commands = pair.addressed().commands
    assert commands
    plain, tuned = commands
    resolved = {BASELINE: _resolved(plain), CANDIDATE: _resolved(tuned)}
    names = shlex.join(plain), shlex.join(tuned)
    verdict = Verdict("ambiguous", None, None, [], settings.margin, *names, "whole")
    blind = NOTHING in pair.allow
    if pair.metrics is None:
        verdict.reasons.append(Refusal(NOTHING, "" if blind else INSTEAD))
    if pair.metrics is not None or blind:
        _raced(verdict, Programs(resolved, pair.metrics, settings.patience_s, clock), settings, pair)
    verdict.excuse(pair.allow)
    verdict.seconds = (clock.now_ns() - began) / NS_PER_S
    return verdict


def _raced(verdict: Verdict, sampler: Programs, settings: Settings, pair: Pair) -> None:
    run = race(sampler, settings, settings.seeds(), lambda *_: [], sampler.clock)
    settings.keep(run)
    verdict.reasons += run.reasons
    verdict.timings = comparisons(run, settings.margin)
    if verdict.timings:
        conclude(verdict, verdict.timings[0])
    if pair.metrics is not None and not run.reasons:
        _compared(verdict, sampler, pair.agree)


def _cleared(metrics: Path | None) -> None:
    """Remove the metrics of an earlier run, so that they do not count as this run's."""
    try:
        if metrics is not None:
            metrics.unlink(missing_ok=True)
    except OSError as error:
        raise BadInputError(
            f"{metrics} cannot be removed before a run ({error.strerror}); give a file for --metrics."
        ) from None


def _compared(verdict: Verdict, sampler: Programs, agree: float | None) -> None:
    reasons, verdict.agreement = differences(sampler.seen[BASELINE], sampler.seen[CANDIDATE], agree)
    verdict.reasons += reasons
    verdict.reference = "the baseline's own runs"
    if agree is not None:
        verdict.notes.append(f"The pair declares that its forms agree within {agree:g} of each value.")


def _resolved(words: Command) -> list[str]:
    from fathom.recorder import CannotLaunchError, resolve_command

    try:
        path, command = resolve_command(list(words))
    except CannotLaunchError as error:
        raise BadInputError(str(error)) from None
    return [path, *command[1:]]
