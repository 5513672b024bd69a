"""Prove techniques here, in parallel, except those that were already proven."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import BadInputError
from fathom.lab.crew import Progress, Say, side_by_side
from fathom.lab.results import Kept, keep, recalled
from fathom.lab.surroundings import Here, here, room, why_not
from fathom.lab.technique import Technique
from fathom.machine import known_machine
from fathom.referee import (
    Fork,
    Gate,
    Launcher,
    Pair,
    Settings,
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

    machine: dict[str, Any]
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
    machine: dict[str, Any] | None = None,
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
    turn = Turn(gate, shared.limit_s, quiet=technique.chooses, device=shared.at.device)
    try:
        return _proven(technique, shared, _settings(technique, shared, turn, report))
    finally:
        progress.end(technique.name)


def _known(
    technique: Technique, machine: dict[str, Any], at: Here, force: bool, folder: Path | None, say: Say
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
    known = {name: versions[name] for name in _VERSIONS if name in versions}
    kept = Kept(technique.name, technique.digest, shared.at.device, time.time_ns(), known, verdict)
    keep(kept, shared.machine["fingerprint"], shared.folder)
    return Outcome(technique.name, "proven", kept=kept)
