"""Rank implementations of a function: each is proven in a sandbox against the reference, on every shape."""

from __future__ import annotations

import ast
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import BadInputError, file_error, last_line
from fathom.referee import Refusal, Verdict, running
from fathom.regular import read_regular
from fathom.tuner.running import die_with_parent
from fathom.units import GIB

INPUTS = "inputs"
MODULE = "fathom.tuner.proving"
NETLESS = ("unshare", "--map-root-user", "--net")
# With separate process ids, everything that a candidate started ends with it, daemons too.
ISOLATIONS = ((*NETLESS, "--pid", "--fork", "--kill-child", "--mount-proc", "--"), (*NETLESS, "--"))
TIMED, ATTEMPTS = {"patched-timer", "detects-referee"}, 3
Options = dict[str, object]


class Ranked(msgspec.Struct):
    """One candidate. `ratio` is the geometric mean of its time over the reference's, over all shapes.

    `verdict` is refused, faster (on a shape, and slower on none), slower, same or inconclusive. `ceiling` is
    the smallest fraction of the speed of light that it reaches on a shape, if the work is known. `choice`:
    the parameters of a proposal of a search.
    """

    candidate: str
    verdict: str
    ratio: float | None
    shapes: dict[str, Verdict]
    reasons: list[Refusal] = []
    ceiling: float | None = None
    choice: dict[str, Any] = {}


class Searched(msgspec.Struct):
    """A search: the numbers of proposals and of wrong ones, and the candidate that was proven, if any."""

    seed: int
    seconds: float
    tried: int
    wrong: int
    winner: Ranked | None = None
    file: str | None = None  # the winner's code


class Ranking(msgspec.Struct):
    """All candidates, the fastest first and the refused ones last. `isolated`: without a network.

    `notes` are those of every proof, for example that compute-sanitizer is missing.
    """

    reference: str
    rows: list[Ranked]
    isolated: bool
    notes: list[str] = []
    searched: Searched | None = None

    @property
    def proven(self) -> bool:
        """Whether a candidate, or the winner of a search, is proven faster."""
        if self.searched is not None:
            return self.searched.winner is not None
        return any(row.verdict == "faster" for row in self.rows)


@dataclass(frozen=True)
class Sandbox:
    """Limits of the process in which a candidate is proven."""

    limit_s: float = 300.0
    memory_gib: float = 16.0

    def prove(self, job: dict[str, object]) -> Verdict | str:
        """Prove one pair; return the verdict, or in one clause why there is none."""
        with tempfile.TemporaryDirectory(prefix="fathom-kernel-") as folder:
            around = {**os.environ, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
            command = [*isolation(), sys.executable, "-m", MODULE]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            with running(command, cwd=folder, env=around, preexec_fn=self._limit, **pipes) as process:
                try:
                    said, errors = process.communicate(json.dumps(job).encode(), self.limit_s)
                except subprocess.TimeoutExpired:
                    return f"the proof did not end within {self.limit_s:g} s"
        return _answer(said, errors.decode(errors="replace"))

    def _limit(self) -> None:
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not Path("/dev/nvidiactl").exists():  # a driver reserves more addresses than there is memory
            limit = int(self.memory_gib * GIB)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@cache
def isolation() -> tuple[str, ...]:
    """Return the command that starts a process without a network, or () if the system permits none."""
    if shutil.which(NETLESS[0]) is None:
        return ()
    for command in ISOLATIONS:
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return ()


def _answer(said: bytes, errors: str) -> Verdict | str:
    last = said.splitlines()[-1] if said.strip() else b""
    try:
        content = msgspec.json.decode(last)
        if "bad_input" in content:
            raise BadInputError(content["bad_input"])
        return msgspec.convert(content, Verdict)
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        return f"the proof ended without a verdict: {last_line(errors)[:200]}"


@dataclass(frozen=True)
class Contest:
    """The reference of candidates: `pair` has the fields of the referee's pair that they share.

    `name` is the function of a candidate, `shapes` are names with addresses of functions that make inputs.
    """

    name: str
    pair: dict[str, Any]
    shapes: tuple[tuple[str, str], ...]
    sandbox: Sandbox

    @property
    def reference(self) -> str:
        return str(self.pair["plain"])

    def ranked(self, path: Path, settings: Options) -> Ranked:
        """Prove one candidate shape by shape, until one refuses it."""
        verdicts: dict[str, Verdict] = {}
        pair = self.pair | {"tuned": f"{path.resolve()}:{self.name}"}
        for shape, inputs in self.shapes:
            verdict = _proven(self.sandbox, {"pair": pair | {"inputs": inputs}, "settings": settings})
            if isinstance(verdict, str):
                return Ranked(path.name, "refused", None, verdicts, [Refusal("raises", verdict)])
            verdicts[shape] = verdict
            if verdict.refused:
                return Ranked(path.name, "refused", None, verdicts, verdict.reasons)
        return Ranked(path.name, _overall(verdicts), _mean_ratio(verdicts), verdicts, [], _ceiling(verdicts))


def contest_of(reference: str, sandbox: Sandbox | None = None) -> Contest:
    """Return the contest for a reference, given as file.py:function. Raises BadInputError."""
    file, name = _split(reference)
    functions = _functions(file)
    shapes = [known for known in functions if known == INPUTS or known.startswith(f"{INPUTS}_")]
    if name not in functions or not shapes:
        raise BadInputError(f"{file} needs the functions {name} and inputs(seed); add them to it.")
    beside: dict[str, Any] = {p: f"{file}:{p}" for p in ("variants", "work") if p in functions}
    named = ((shape.removeprefix(INPUTS).lstrip("_") or "default", f"{file}:{shape}") for shape in shapes)
    return Contest(name, {"plain": f"{file}:{name}", **beside}, tuple(named), sandbox or Sandbox())


def candidates_of(contest: Contest, directory: Path) -> list[Path]:
    """Return the files in the folder that define the function. Raises BadInputError if there are none."""
    reference = contest.reference.rpartition(":")[0]
    paths = [path for path in _candidates(directory, contest.name) if str(path.resolve()) != reference]
    if not paths:
        raise BadInputError(
            f"{directory} has no Python file with a function {contest.name}; add a candidate."
        )
    return paths


def rank_kernels(
    reference: str,
    directory: Path,
    sandbox: Sandbox | None = None,
    budget_s: float = 20.0,
    margin: float = 0.01,
    fresh: str = "fork",
    sanitize: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Ranking:
    """Prove every candidate in `directory` against `reference`, given as file.py:function.

    Raises BadInputError if the reference or its inputs cannot be used, or there is no candidate.
    """
    contest = contest_of(reference, sandbox)
    candidates = candidates_of(contest, directory)
    settings: Options = {"budget_s": budget_s, "margin": margin, "fresh": fresh, "sanitize": sanitize}
    rows = []
    for number, path in enumerate(candidates):
        progress(f"candidate {number + 1} of {len(candidates)}: {path.name}")
        rows.append(contest.ranked(path, settings))
    return ranking_of(contest, rows)


def ranking_of(contest: Contest, rows: list[Ranked], searched: Searched | None = None) -> Ranking:
    """Return the rows in order, with the notes that every proof has."""
    rows = sorted(rows, key=lambda row: (row.verdict == "refused", row.ratio or math.inf))
    return Ranking(contest.reference, rows, bool(isolation()), _shared_notes(rows), searched)


def _shared_notes(rows: list[Ranked]) -> list[str]:
    """Return the notes of every proof that has a verdict."""
    notes = [verdict.notes for row in rows for verdict in row.shapes.values()]
    return (
        [note for note in dict.fromkeys(notes[0]) if all(note in other for other in notes)] if notes else []
    )


def _proven(sandbox: Sandbox, job: dict[str, object]) -> Verdict | str:
    """Prove a pair; again if times alone refused it, which a busy machine does too."""
    for _ in range(ATTEMPTS):
        verdict = sandbox.prove(job)
        if isinstance(verdict, str) or not {reason.code for reason in verdict.reasons} & TIMED:
            break
    return verdict


def _overall(verdicts: dict[str, Verdict]) -> str:
    kinds = {verdict.verdict for verdict in verdicts.values()}
    if "slower" in kinds:
        return "slower"
    if "faster" in kinds:
        return "faster" if "inconclusive" not in kinds else "inconclusive"
    return "same" if kinds == {"same"} else "inconclusive"


def _mean_ratio(verdicts: dict[str, Verdict]) -> float | None:
    ratios = [verdict.ratio for verdict in verdicts.values() if verdict.ratio]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if len(ratios) == len(verdicts) else None


def _ceiling(verdicts: dict[str, Verdict]) -> float | None:
    known = [timing.candidate.ceiling for verdict in verdicts.values() for timing in verdict.timings]
    return min((fraction.fraction for fraction in known if fraction), default=None)


def _split(reference: str) -> tuple[Path, str]:
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise BadInputError(f"'{reference}' is not a function in a file; give it as file.py:function.")
    return Path(file).resolve(), name


def _functions(file: Path) -> list[str]:
    """Return the names of the functions in a file, without running it."""
    try:
        tree = ast.parse(read_regular(file))
    except OSError as error:
        raise BadInputError(file_error(file, error)) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInputError(f"{file} is not valid Python: {error}.") from None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] + [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def _candidates(directory: Path, name: str) -> Iterator[Path]:
    """Yield the files that define the function; files that are not valid Python are skipped."""
    if not directory.is_dir():
        raise BadInputError(f"{directory} is not a folder; give the folder of candidates.")
    for path in sorted(directory.glob("*.py")):
        try:
            names = _functions(path)
        except BadInputError:
            continue
        if name in names:
            yield path
