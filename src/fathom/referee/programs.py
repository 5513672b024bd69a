"""Proofs of whole commands: each run is a fresh process, timed from start to end, in the order A B B A."""

from __future__ import annotations

import json
import os
import shlex
import struct
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fathom.errors import BadInputError, last_line
from fathom.referee.blocks import Block, Seeds
from fathom.referee.compare.decode import Saved
from fathom.referee.compare.errors import errors
from fathom.referee.compare.tolerance import tolerance
from fathom.referee.launching import running
from fathom.referee.pair import Command, Pair, Settings
from fathom.referee.race import Race, comparisons, conclude, race
from fathom.referee.sides import BASELINE, CANDIDATE, SideError
from fathom.referee.verdict import Agreement, Refusal, Verdict
from fathom.timing import Clock, SystemClock
from fathom.units import NS_PER_S

NOTHING = "nothing-compared"
INSTEAD = f"name a file that both write with --metrics, or skip the comparison with --allow {NOTHING}"
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
        ns = run_command(self.commands[side], self.patience_s, self.clock)
        if self.metrics is not None:
            self.seen.setdefault(side, []).append(read_metrics(self.metrics))
        return Block({"": [float(ns)]})


@dataclass
class StepRuns:
    """Times the steps of one program under two settings: each block is a fresh run.

    `run(side)` returns the times of groups of steps in ns, and the results by name. Raises SideError.
    """

    run: Callable[[str], tuple[list[float], Metrics]]
    seen: dict[str, list[Metrics]] = field(default_factory=dict)

    def block(self, side: str, seeds: Seeds, chosen: float, known: Saved | None = None) -> Block:
        """Run the program once."""
        samples, arrays = self.run(side)
        self.seen.setdefault(side, []).append(arrays)
        return Block({"": samples})


def prove_steps(
    run: Callable[[str], tuple[list[float], Metrics]],
    names: tuple[str, str],
    settings: Settings,
    agree: float | None = None,
    allow: tuple[str, ...] = (),
    clock: Clock | None = None,
    rounded: Callable[[], Sequence[Metrics]] = tuple,
) -> Verdict:
    """Prove that the steps of a program are faster under the second of two settings, and its results equal.

    `run` is that of `StepRuns`, `rounded` that of `differences`. Raises BadInputError if the program fails
    under the first setting.
    """
    clock = clock or SystemClock()
    began, runs = clock.now_ns(), StepRuns(run)
    verdict = Verdict("inconclusive", None, None, [], settings.margin, *names, "steps")
    raced = race(runs, settings, settings.seeds(), lambda *_: [], clock)
    settings.keep(raced)
    _concluded(verdict, raced, settings)
    if not raced.reasons:
        if any(runs.seen[BASELINE]):
            _compared(verdict, runs.seen, agree, rounded)
        else:
            verdict.reasons.append(Refusal(NOTHING))
    verdict.excuse(allow)
    verdict.seconds = (clock.now_ns() - began) / NS_PER_S
    return verdict


def run_command(command: Sequence[str], patience_s: float, clock: Clock, cwd: Path | None = None) -> int:
    """Run a command once, and return its ns from start to end. Raises SideError if it fails or hangs."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        began = clock.now_ns()
        with running(list(command), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=cwd) as process:
            try:
                status = process.wait(patience_s)
            except subprocess.TimeoutExpired:
                raise SideError("hangs", f"it did not end within {patience_s:g} s") from None
        if status:
            raise SideError("raises", f"it ended with status {status}: {_last_line(said.fileno())}")
        return clock.now_ns() - began


def _last_line(said: int) -> str:
    size = os.lseek(said, 0, os.SEEK_END)
    os.lseek(said, max(0, size - LAST), os.SEEK_SET)
    return last_line(os.read(said, LAST).decode(errors="replace"))


def prove_whole(pair: Pair, settings: Settings, clock: Clock | None = None) -> Verdict:
    """Prove a pair of commands, which run without a shell. Raises BadInputError."""
    clock = clock or SystemClock()
    began = clock.now_ns()
    commands = pair.addressed().commands
    assert commands
    plain, tuned = commands
    resolved = {BASELINE: _resolved(plain), CANDIDATE: _resolved(tuned)}
    names = shlex.join(plain), shlex.join(tuned)
    verdict = Verdict("inconclusive", None, None, [], settings.margin, *names, "whole")
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
    _concluded(verdict, run, settings)
    if pair.metrics is not None and not run.reasons:
        _compared(verdict, sampler.seen, pair.agree)


def _concluded(verdict: Verdict, run: Race, settings: Settings) -> None:
    verdict.reasons += run.reasons
    verdict.timings = comparisons(run, settings.margin)
    if verdict.timings:
        conclude(verdict, verdict.timings[0])


def _cleared(metrics: Path | None) -> None:
    """Remove the metrics of an earlier run, so that they do not count as this run's."""
    try:
        if metrics is not None:
            metrics.unlink(missing_ok=True)
    except OSError as error:
        raise BadInputError(
            f"{metrics} cannot be removed before a run ({error.strerror}); give a file for --metrics."
        ) from None


def _compared(
    verdict: Verdict,
    seen: dict[str, list[Metrics]],
    agree: float | None,
    rounded: Callable[[], Sequence[Metrics]] = tuple,
) -> None:
    reasons, verdict.agreement = differences(seen[BASELINE], seen[CANDIDATE], agree, rounded)
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


# Metrics that programs write, such as a loss curve, final weights or tokens, compared run by run
Metrics = dict[str, np.ndarray]
SPREAD = 3.0  # times the largest difference between the baseline's own runs
_DAMAGED = (  # RuntimeError includes RecursionError and NotImplementedError
    *(EOFError, KeyError, MemoryError, OverflowError, RuntimeError, SyntaxError, TypeError, ValueError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
_LOSSES = ("loss", "perplexity")


def read_metrics(path: Path) -> Metrics:
    """Read arrays by name from a `.npz` file, else a JSON object. Raises SideError without numbers."""
    if path.exists() and not path.is_file():  # reading a pipe would not end
        raise _unusable(path, "is not a file")
    try:
        content = _npz(path) if path.suffix == ".npz" else json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _unusable(path, "was not written; both programs must write it") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror or 'damaged'})") from None
    except _DAMAGED:
        raise _unusable(path, f"is not {'npz' if path.suffix == '.npz' else 'JSON'}") from None
    if not isinstance(content, dict):
        raise _unusable(path, "has no arrays by name")
    arrays = {str(name): _array(path, name, values) for name, values in content.items()}
    if not any(array.size for array in arrays.values()):
        raise _unusable(path, "has no numbers")
    return arrays


def _npz(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path):  # else numpy would also accept a pickle or a single array
        pass
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _array(path: Path, name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise _unusable(path, f"has '{name}', which is not an array of numbers")
    return array


def _unusable(path: Path, why: str) -> SideError:
    return SideError("no-metrics", f"{path} {why}")


def differences(
    baseline: Sequence[Metrics],
    candidate: Sequence[Metrics],
    agree: float | None = None,
    rounded: Callable[[], Sequence[Metrics]] = tuple,
) -> tuple[list[Refusal], list[Agreement]]:
    """Return reasons to refuse, and the agreement of each array.

    Runs of one program differ, and their scatter sets the tolerance: the candidate may be three times as far
    from the mean of the baseline's runs as two of those are from each other. The tolerance is never below
    rounding error, nor below `agree`, a share that the pair declares. Integers (tokens) must be equal where
    all runs of the baseline agree. If results differ, `rounded` is asked for further results of the baseline,
    rounded at random, which count as its runs.
    """
    seen = _differences(baseline, candidate, agree)
    if seen[0] and (more := rounded()):
        return _differences([*baseline, *more], candidate, agree)
    return seen


def _differences(
    baseline: Sequence[Metrics], candidate: Sequence[Metrics], agree: float | None
) -> tuple[list[Refusal], list[Agreement]]:
    reasons, agreement = [], []
    for name in sorted({name for run in (*baseline, *candidate) for name in run}):
        forms = {run[name].shape if name in run else None for run in (*baseline, *candidate)}
        if len(forms) > 1:
            reasons.append(Refusal("contract", f"{name} is missing or has a different shape in some runs"))
            continue
        theirs, mine = ([run[name] for run in runs] for runs in (baseline, candidate))
        exact = theirs[0].dtype.kind in "biu"
        row, why = _exact(name, theirs, mine) if exact else _near(name, theirs, mine, agree or 0.0)
        agreement.append(row)
        code = "other-losses" if any(word in name.lower() for word in _LOSSES) else "other-weights"
        reasons += [Refusal(code, why)] if why else []
    return reasons, agreement


def _exact(name: str, theirs: list[np.ndarray], mine: list[np.ndarray]) -> tuple[Agreement, str]:
    agreement = Agreement(name, str(theirs[0].dtype), len(mine))
    repeatable = all(np.array_equal(theirs[0], other) for other in theirs)
    wrong = max(int(np.count_nonzero(theirs[0] != other)) for other in mine)
    return agreement, f"{wrong} of {theirs[0].size} numbers of {name} differ" if repeatable and wrong else ""


def _near(name: str, theirs: list[np.ndarray], mine: list[np.ndarray], agree: float) -> tuple[Agreement, str]:
    middle = np.mean([np.asarray(run, float) for run in theirs], axis=0)
    distances = (errors(a, np.asarray(b, float)).norm for a, b in combinations(theirs, 2))
    scatter, rounding = max(distances, default=0.0), tolerance("float32", middle.size, middle.size)
    allowed = max(SPREAD * scatter, rounding.norm if rounding else 0.0, agree)
    seen = max((errors(run, middle) for run in mine), key=lambda run_errors: run_errors.norm)
    finite = all(np.isfinite(run).all() for run in mine) or not np.isfinite(middle).all()
    agreement = Agreement(name, str(theirs[0].dtype), len(mine), seen.norm, allowed, seen.worst)
    agreement.baseline_norm = scatter
    if not finite:
        return agreement, f"{name} has NaN or infinities"
    far = "" if seen.norm <= allowed else f"{name} is {seen.norm:.1e} off, {allowed:.1e} is allowed"
    return agreement, far
