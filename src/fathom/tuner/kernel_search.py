"""Search the parameters of kernels: proposals are checked and timed briefly, and the best one is proven."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fathom.atomic import write_private
from fathom.errors import BadInputError, file_errors
from fathom.lab import Technique, chosen, techniques
from fathom.timing import MARGIN, Clock, SystemClock
from fathom.tuner.kernels import (
    Contest,
    Options,
    Ranked,
    Ranking,
    Sandbox,
    Searched,
    candidates_of,
    contest_of,
    ranking_of,
)
from fathom.tuner.proposing import Choice, Evolution, Source, read_source
from fathom.units import NS_PER_S

BRIEF: Options = {"budget_s": 0.0, "block_s": 0.05, "bare": False}  # six blocks a side, all results compared
MOST_FINALISTS = 3
FASTER = "faster"


@dataclass(frozen=True)
class Searching:
    """How to search: `time_s` ends the proposals, `settings` are those of the proofs of the best ones."""

    time_s: float = 60.0
    seed: int = 0
    output: Path | None = None
    settings: Options = field(default_factory=dict)
    margin: float = MARGIN
    clock: Clock = field(default_factory=SystemClock)
    progress: Callable[[str], None] = lambda _: None


@dataclass
class _Proposal:
    """A proposal that was measured: `path` is the candidate with its values."""

    source: Source
    choice: Choice
    path: Path
    row: Ranked


def search_kernels(reference: str, directory: Path, sandbox: Sandbox, how: Searching) -> Ranking:
    """Search parameters of a folder's candidates, or measure those without. Raises BadInputError."""
    contest = contest_of(reference, sandbox)
    sources = [read_source(path) for path in candidates_of(contest, directory)]
    if not any(source.space.parameters for source in sources):
        raise BadInputError(
            f"No candidate in {directory} has parameters; declare them, for example"
            " parameters = {'BLOCK': [64, 128]}, or leave --search out."
        )
    return _search(contest, sources, how)


def search_technique(name: str, sandbox: Sandbox, how: Searching) -> Ranking:
    """Search the parameters that a technique of the lab declares. Raises BadInputError."""
    technique = _with_parameters(name)
    pair = technique.pair.addressed()
    shared = {role: getattr(pair, role) for role in ("plain", "reference", "variants", "work")}
    shared |= {"precision": pair.precision, "reduction": pair.reduction, "allow": pair.allow}
    proof = technique.header.proof
    settings = how.settings | {"latency": proof.latency, "cache": proof.cache}
    contest = Contest(technique.function, shared, (("default", str(pair.inputs)),), sandbox)
    source = read_source(technique.path, technique.header.parameters)
    return _search(contest, [source], replace(how, settings=settings))


def _with_parameters(name: str) -> Technique:
    every = [technique.name for technique in techniques().values() if technique.header.parameters]
    technique, *more = chosen([name])
    if more or not technique.header.parameters:
        raise BadInputError(f"{name} is not a technique with parameters; choose from {', '.join(every)}.")
    return technique


def _search(contest: Contest, sources: Sequence[Source], how: Searching) -> Ranking:
    began = how.clock.now_ns()
    _require_writable(how.output)
    with tempfile.TemporaryDirectory(prefix="fathom-search-") as folder:
        proposals = _proposals(contest, sources, Path(folder), how)
        winner = _winner(contest, proposals, how)
        file = None if winner is None else _written(winner, how.output)
    rows = [proposal.row for proposal in proposals]
    searched = Searched(
        seed=how.seed,
        seconds=(how.clock.now_ns() - began) / NS_PER_S,
        tried=len(rows),
        wrong=sum(row.verdict == "refused" for row in rows),
        winner=winner.row if winner else None,
        file=file,
    )
    return ranking_of(contest, rows, searched)


def _proposals(contest: Contest, sources: Sequence[Source], folder: Path, how: Searching) -> list[_Proposal]:
    """Measure proposals of all candidates in turn, until the time is over or there are none."""
    searches = {source.path: (source, Evolution(source.space, how.seed)) for source in sources}
    until = how.clock.now_ns() + NS_PER_S * how.time_s
    proposals: list[_Proposal] = []
    while searches and (how.clock.now_ns() < until or not proposals):
        for path, (source, evolution) in list(searches.items()):
            choice = evolution.ask()
            if choice is None:
                del searches[path]
                continue
            how.progress(f"{_standing(proposals)} · now {labelled(path.name, choice)}")
            proposal = _measured(contest, source, choice, folder / f"{len(proposals)}", how)
            evolution.tell(choice, None if proposal.row.verdict == "refused" else proposal.row.ratio)
            proposals.append(proposal)
            if how.clock.now_ns() >= until:
                break
    return proposals


def _measured(contest: Contest, source: Source, choice: Choice, folder: Path, how: Searching) -> _Proposal:
    folder.mkdir()
    path = folder / source.path.name
    path.write_text(source.fixed(choice), encoding="utf-8")
    row = contest.ranked(path, how.settings | BRIEF)
    row.choice = choice
    return _Proposal(source, choice, path, row)


def _winner(contest: Contest, proposals: list[_Proposal], how: Searching) -> _Proposal | None:
    """Prove the fastest proposals in turn, and return the first one that is proven faster."""
    ratios = {id(proposal): proposal.row.ratio or 1.0 for proposal in proposals}
    usable = [proposal for proposal in proposals if proposal.row.verdict != "refused"]
    promising = [proposal for proposal in usable if ratios[id(proposal)] < 1 - how.margin]
    for proposal in sorted(promising, key=lambda known: ratios[id(known)])[:MOST_FINALISTS]:
        how.progress(f"proving {labelled(proposal.source.path.name, proposal.choice)}")
        row = contest.ranked(proposal.path, how.settings)
        row.choice = proposal.choice
        proposal.row = row
        if row.verdict == FASTER:
            return proposal
    return None


def _written(winner: _Proposal, output: Path | None) -> str | None:
    if output is None:
        return None
    with file_errors(output, "written"):
        write_private(output, winner.path.read_text(encoding="utf-8"))
    return str(output)


def _require_writable(output: Path | None) -> None:
    """Raise BadInputError, before the search, if the winner could not be written."""
    if output is None:
        return
    if output.exists():
        raise BadInputError(f"{output} exists; choose another name for the winner.")
    if not output.absolute().parent.is_dir():
        raise BadInputError(f"The folder of {output} does not exist; create it, or choose another.")


def _standing(proposals: list[_Proposal]) -> str:
    ratios = [p.row.ratio for p in proposals if p.row.verdict != "refused" and p.row.ratio]
    best = f"best {min(ratios):.3f} of the reference's time · " if ratios else ""
    return f"{best}{len(proposals)} tried"


def labelled(candidate: str, choice: Choice) -> str:
    """Return a candidate with its parameters: norm.py BLOCK=128 num_warps=4."""
    return " ".join([candidate, *(f"{name}={value}" for name, value in choice.items())])
