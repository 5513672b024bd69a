"""Prove techniques here, in parallel, except those that were already proven; verdicts are kept by machine."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from fathom.errors import BadInputError, file_error
from fathom.lab.crew import Progress, Say, side_by_side
from fathom.lab.surroundings import Here, here, room, why_not
from fathom.lab.technique import Technique
from fathom.machine import HOME, MachineFileError, home, known_machine
from fathom.machine.model import Machine
from fathom.referee import (
    Fork,
    Gate,
    Launcher,
    Pair,
    Settings,
    Timing,
    TooLongError,
    Turn,
    Verdict,
    first_gpu,
    one_at_a_time,
    prove_pair,
)

Prove = Callable[[Pair, Settings], Verdict]
_VERSIONS = ("torch", "triton", "driver", "cuda_driver", "fathom")
BLOCK_S = {"cuda": 0.15, "cpu": 0.3}  # of samples in one process: a GPU scatters little within one
_MEMORY = re.compile(r"out.of.memory", re.IGNORECASE)


class Outcome(msgspec.Struct):
    """`state`: proven (in this run), kept (proven before), skipped or failed; the last two have a reason."""

    technique: str
    state: str
    reason: str = ""
    kept: Kept | None = None

    @property
    def bad(self) -> bool:
        """Whether it failed or was refused."""
        return self.state == "failed" or (self.kept is not None and self.kept.verdict.refused)

    @property
    def starved(self) -> bool:
        """Whether it ran out of memory."""
        reasons = self.kept.verdict.reasons if self.kept else []
        return any(_MEMORY.search(text) for text in (self.reason, *(reason.detail for reason in reasons)))


@dataclass(frozen=True)
class _Run:
    """The state that all proofs of a run share."""

    machine: Machine
    at: Here
    prove: Prove
    folder: Path | None
    budget_s: float
    limit_s: float
    launcher: Launcher | None


def run(
    wanted: Iterable[Technique],
    *,
    force: bool = False,
    budget_s: float = 30.0,
    limit_s: float = 300.0,
    jobs: int | None = None,
    say: Say = lambda _: None,
    tell: Say = lambda _: None,
    machine: Machine | None = None,
    at: Here | None = None,
    prove: Prove = prove_pair,
    folder: Path | None = None,
) -> Generator[Outcome, None, None]:
    """Yield one outcome per technique as soon as it is known, first those that need no proof.

    `budget_s`: maximum seconds of timing per technique; `limit_s`: maximum seconds in total, without the time
    in which it waits for others; `jobs`: how many run in parallel, by default as many as the machine has room
    for. `say` prints a line that replaces the last one, `tell` one that stays. Raises MachineFileError if a
    result cannot be written.
    """
    machine = known_machine() if machine is None else machine
    at = here(machine) if at is None else at
    todo = []
    for technique in wanted:
        if known := _known(technique, machine, at, force, folder, say):
            yield known
        else:
            todo.append(technique)
    if not todo:
        return
    # These modules take seconds to import, and importing them does not initialise CUDA.
    slow = ["torch", "torch._dynamo", *(["triton"] if at.has("triton") else [])]
    with Fork(slow) if at.device == "cuda" else nullcontext() as launcher:
        shared = _Run(machine, at, prove, folder, budget_s, limit_s, launcher)
        gpu = first_gpu(machine.get("gpus") or []) if at.device == "cuda" else None
        with one_at_a_time(gpu, tell):  # proofs share it, and samples are taken exclusively
            yield from _all(todo, shared, room(machine, at) if jobs is None else jobs, say)


def _all(todo: list[Technique], shared: _Run, jobs: int, say: Say) -> Iterator[Outcome]:
    """Run the proofs; repeat alone those that ran out of memory beside others."""
    progress, again = Progress(len(todo), say), list[Technique]()
    named = {technique.name: technique for technique in todo}
    with closing(side_by_side(todo, partial(_prove_one, shared, progress), jobs)) as outcomes:
        for outcome in outcomes:
            if jobs > 1 and outcome.starved:
                again.append(named[outcome.technique])
            else:
                yield outcome
    yield from side_by_side(again, partial(_prove_one, shared, Progress(len(again), say)), 1)


def _prove_one(shared: _Run, progress: Progress, technique: Technique, gate: Gate) -> Outcome:
    report = progress.begin(technique.name)
    turn = Turn(
        gate, shared.limit_s, quiet=technique.chooses or bool(technique.needs.ranks), device=shared.at.device
    )
    try:
        return _proven(technique, shared, _settings(technique, shared, turn, report))
    finally:
        progress.end(technique.name)


def _known(
    technique: Technique, machine: Machine, at: Here, force: bool, folder: Path | None, say: Say
) -> Outcome | None:
    reason = why_not(technique.needs, at)
    if reason:
        return Outcome(technique.name, "skipped", reason)
    before = None if force else recalled(technique, machine["fingerprint"], say, folder)
    return None if before is None else Outcome(technique.name, "kept", kept=before)


def _settings(technique: Technique, shared: _Run, turn: Turn, report: Say) -> Settings:
    proof = technique.header.proof
    return Settings(
        budget_s=shared.budget_s,
        block_s=BLOCK_S[shared.at.device],
        latency=proof.latency,
        cache=proof.cache,
        patience_s=shared.limit_s,
        bare=False,  # Fathom's own techniques do not look for a referee
        progress=report,
        turn=turn,
        launcher=shared.launcher,
    )


def _proven(technique: Technique, shared: _Run, settings: Settings) -> Outcome:
    try:
        verdict = shared.prove(technique.pair, settings)
    except (BadInputError, TooLongError) as error:
        return Outcome(technique.name, "failed", str(error))
    except MemoryError:
        return Outcome(technique.name, "failed", "Out of memory while its results were compared.")
    versions = shared.machine["versions"]
    known = {name: version for name in _VERSIONS if (version := versions.get(name))}
    kept = Kept(technique.name, technique.digest, shared.at.device, time.time_ns(), known, verdict)
    keep(kept, shared.machine["fingerprint"], shared.folder)
    return Outcome(technique.name, "proven", kept=kept)


# The verdicts: one JSON file per technique, under the machine's fingerprint
class Kept(msgspec.Struct):
    """A stored verdict, with versions of libraries at that time; `source` is the technique's digest."""

    technique: str
    source: str
    device: str
    taken_ns: int
    versions: dict[str, str]
    verdict: Verdict

    @property
    def last(self) -> Last:
        """The verdict in short."""
        chosen = next((c for c in self.verdict.timings if c.ratio == self.verdict.ratio), None)
        return Last(
            verdict=self.verdict.verdict,
            ratio=self.verdict.ratio,
            interval=self.verdict.interval,
            plain_of_ceiling=_of_ceiling(chosen.baseline) if chosen else None,
            tuned_of_ceiling=_of_ceiling(chosen.candidate) if chosen else None,
            device=self.device,
            taken_ns=self.taken_ns,
        )


class Last(msgspec.Struct):
    """The last verdict on a technique here, with the share of its ceiling that each form reached."""

    verdict: str
    ratio: float | None
    interval: list[float] | None
    plain_of_ceiling: float | None
    tuned_of_ceiling: float | None
    device: str
    taken_ns: int


class Listed(msgspec.Struct):
    """A technique in a list: `why_not` is None if it runs here, `last` if it was never proven here."""

    name: str
    group: str
    title: str
    saves: str
    gains: str
    why_not: str | None
    last: Last | None


def place(name: str, fingerprint: str, folder: Path | None = None) -> Path:
    """Return the path of the file with the result of a technique on this machine."""
    return (folder or home()) / "lab" / fingerprint / f"{name}.json"


def recall(technique: Technique, fingerprint: str, folder: Path | None = None) -> Kept | None:
    """Return the last result with the technique's present code, or None. Raises MachineFileError."""
    path = place(technique.name, fingerprint, folder)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MachineFileError(file_error(path, error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        remedy = "delete it, and run the technique again"
        raise MachineFileError(f"{path} is not a lab result; {remedy}.") from None
    return kept if kept.source == technique.digest else None


def recalled(
    technique: Technique, fingerprint: str, say: Callable[[str], None], folder: Path | None = None
) -> Kept | None:
    """Return the result like `recall`, or None for a damaged file, which `say` reports."""
    try:
        return recall(technique, fingerprint, folder)
    except MachineFileError as error:
        say(str(error))
        return None


def keep(kept: Kept, fingerprint: str, folder: Path | None = None) -> Path:
    """Write the result atomically. Raises MachineFileError."""
    path = place(kept.technique, fingerprint, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            file.write(msgspec.json.encode(kept))
        os.replace(file.name, path)  # noqa: PTH105
    except OSError as error:
        why = f"The result cannot be stored in {path.parent}: {error.strerror}"
        raise MachineFileError(f"{why}; set ${HOME} to a writable folder.") from None
    return path


def listed(technique: Technique, fingerprint: str, at: Here, say: Callable[[str], None]) -> Listed:
    """Return the technique with its last verdict, and why it does not run. `say` reports damaged files."""
    kept = recalled(technique, fingerprint, say)
    header, last = technique.header, kept.last if kept else None
    reason = why_not(technique.needs, at)
    return Listed(technique.name, technique.group, header.title, header.saves, header.gains, reason, last)


def _of_ceiling(side: Timing) -> float | None:
    return side.ceiling.fraction if side.ceiling else None
