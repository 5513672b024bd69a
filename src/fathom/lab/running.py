"""Proving techniques here, one after the other; what was proven before is not proven again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import BadInputError
from fathom.lab.results import Kept, keep, recall
from fathom.lab.surroundings import Here, here, why_not
from fathom.lab.technique import Technique
from fathom.machine import MachineFileError, known_machine
from fathom.referee.pair import Pair
from fathom.referee.proof import prove_pair
from fathom.referee.settings import Settings
from fathom.referee.verdict import Verdict

Prove = Callable[[Pair, Settings], Verdict]
Say = Callable[[str], None]
_VERSIONS = ("torch", "triton", "driver", "cuda_driver", "fathom")


class Outcome(msgspec.Struct):
    """`state`: proven now, kept from before, skipped or failed; the latter two with a reason."""

    technique: str
    state: str
    reason: str = ""
    kept: Kept | None = None

    @property
    def bad(self) -> bool:
        """Whether it could not be proven, or was refused."""
        return self.state == "failed" or (self.kept is not None and self.kept.verdict.refused)


def run(
    wanted: Iterable[Technique],
    *,
    force: bool = False,
    budget_s: float = 30.0,
    say: Say = lambda _: None,
    machine: dict[str, Any] | None = None,
    at: Here | None = None,
    prove: Prove = prove_pair,
    folder: Path | None = None,
) -> Iterator[Outcome]:
    """One outcome a technique, as each is reached. `budget_s`: seconds of timing at most for one of them.

    Raises MachineFileError where a result cannot be kept.
    """
    machine = known_machine() if machine is None else machine
    at = here(machine) if at is None else at
    for technique in wanted:
        reason = why_not(technique.needs, at)
        if reason:
            yield Outcome(technique.name, "skipped", reason)
            continue
        before = None if force else _before(technique, machine, folder, say)
        if before is not None:
            yield Outcome(technique.name, "kept", kept=before)
            continue
        yield _proven(technique, _settings(technique, budget_s, say), machine, at.device, prove, folder)


def _before(technique: Technique, machine: dict[str, Any], folder: Path | None, say: Say) -> Kept | None:
    try:
        return recall(technique, machine["fingerprint"], folder)
    except MachineFileError as error:
        say(str(error))
        return None


def _settings(technique: Technique, budget_s: float, say: Say) -> Settings:
    header = technique.header
    told = lambda text: say(f"{technique.name}: {text}")  # noqa: E731
    return Settings(budget_s=budget_s, latency=header.latency, cache=header.cache, progress=told)


def _proven(
    technique: Technique,
    settings: Settings,
    machine: dict[str, Any],
    device: str,
    prove: Prove,
    folder: Path | None,
) -> Outcome:
    try:
        verdict = prove(technique.pair, settings)
    except BadInputError as error:
        return Outcome(technique.name, "failed", str(error))
    versions = {name: machine["versions"][name] for name in _VERSIONS if name in machine["versions"]}
    kept = Kept(technique.name, technique.digest, device, time.time_ns(), versions, verdict)
    keep(kept, machine["fingerprint"], folder)
    return Outcome(technique.name, "proven", kept=kept)
