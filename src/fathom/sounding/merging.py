"""Merge the soundings of a job's nodes into one sounding of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fathom.errors import BadInputError
from fathom.machine.model import Gpu, Machine
from fathom.sounding.manifest import Manifest, Problem, Rank
from fathom.sounding.missing import RANKS_MISSING, note_missing_ranks
from fathom.sounding.store import Store, Writer
from fathom.units import NS_PER_S, ranges

JOBS = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")  # variables that identify a job
MOST_GAP_NS = 60 * NS_PER_S  # between recordings of a job, for example because of wrong clocks
_DIGITS = 9  # of a rank
MOST_RANKS = 1_000_000  # in one range of `numbers`
_ENDED = ("crashed", "killed", "exception", "interrupted", "stopped", "exited", "no-steps")  # worst first


def merge(
    stores: Sequence[Store],
    output: Path,
    *,
    ranks: Iterable[int] | None = None,
    reasons: Mapping[int | str, str] | None = None,
    replace: bool = False,
) -> Store:
    """Write one sounding with the ranks of all `stores`, or only with `ranks`, to `output`.

    `reasons` are those for which parts of the job have no steps.

    Tables are copied as they are. Times stay those of each host's clock. The machine is that of the first
    sounding, with the GPUs of all. Raises BadInputError if the soundings come from different jobs, if two
    contain the same rank, if a wanted rank is missing, or if `output` cannot be written.
    """
    _check_job(stores)
    owner = _owners(stores)
    wanted = sorted(owner if ranks is None else set(ranks))
    missing = [rank for rank in wanted if rank not in owner]
    if missing:
        raise BadInputError(
            f"rank {missing[0]} is in none of the soundings; they have {ranges(owner, ', ')}."
        )
    for store in stores:
        store.verify()
    writer = Writer(output, replace=replace)
    try:
        for rank in wanted:
            writer.adopt(owner[rank], rank)
    except BaseException:
        writer.discard()
        raise
    manifest = _manifest(stores, output, set(wanted))
    note_missing_ranks(manifest, reasons or {})
    return writer.finish(manifest, _machine(stores))


def _machine(stores: Sequence[Store]) -> Machine:
    """Return the first machine, with the GPUs that only the others saw."""
    gpus: dict[int, Gpu] = {}
    for store in stores:
        for gpu in store.machine.get("gpus") or []:
            gpus.setdefault(gpu["index"], gpu)
    machine = stores[0].machine
    return {**machine, "gpus": [gpus[index] for index in sorted(gpus)]} if gpus else machine


def _owners(stores: Sequence[Store]) -> dict[int, Store]:
    owner: dict[int, Store] = {}
    for store in stores:
        for rank in store.ranks:
            if rank in owner:
                raise BadInputError(f"{store.source} contains rank {rank}, like {owner[rank].source}.")
            owner[rank] = store
    return owner


def _check_job(stores: Sequence[Store]) -> None:
    """Raise BadInputError unless all soundings can be of one job, which ran at one time."""
    first = stores[0]
    for store in stores[1:]:
        why = _difference(first, store)
        if why:
            raise BadInputError(f"{first.source} and {store.source} come from different jobs: {why}.")


def _difference(first: Store, other: Store) -> str:
    mine, theirs = first.manifest, other.manifest
    for name in JOBS:
        a, b = mine.environment.get(name), theirs.environment.get(name)
        if a and b and a != b:
            return f"{name} is {a} in one and {b} in the other"
    worlds = {_world(mine), _world(theirs)} - {0}
    if len(worlds) > 1:
        return f"one had {min(worlds)} ranks, the other {max(worlds)}"
    if _gap(mine, theirs) > MOST_GAP_NS:
        return f"they were recorded {_gap(mine, theirs) / NS_PER_S:.0f} s apart"
    return ""


def _world(manifest: Manifest) -> int:
    return max((rank.world or 0 for rank in manifest.ranks), default=0)


def _gap(first: Manifest, other: Manifest) -> float:
    """Nanoseconds between the recordings; 0 if they overlap, or if the time of one is unknown."""
    a, b = first.phases, other.phases
    if not a or not b:
        return 0
    after = min(phase.start_ns for phase in a) - max(phase.end_ns for phase in b)
    before = min(phase.start_ns for phase in b) - max(phase.end_ns for phase in a)
    return max(after, before, 0)


def _manifest(stores: Sequence[Store], output: Path, ranks: set[int]) -> Manifest:
    """Return the manifest of the merged sounding; facts that all nodes share come from the first one."""
    first = stores[0].manifest
    parts = [store.manifest for store in stores if ranks.intersection(store.ranks)]
    statuses = [part.exit_status for part in parts if part.exit_status]
    ended = [name for name in _ENDED if any(part.ended == name for part in parts)]
    about: list[Rank] = sorted((r for p in parts for r in p.ranks if r.rank in ranks), key=lambda r: r.rank)
    abstained = [row for part in parts for row in part.abstained]
    return Manifest(
        name=output.name.removesuffix(".fathom"),
        made_by=first.made_by,
        created_ns=min((part.created_ns for part in parts if part.created_ns), default=0),
        command=first.command,
        origin=first.origin,
        exit_status=statuses[0] if statuses else first.exit_status,
        error=next((part.error for part in parts if part.error), None),
        ended=ended[0] if ended else first.ended,
        ended_ns=max((part.ended_ns for part in parts if part.ended_ns), default=None),
        ranks=about,
        phases=[phase for part in parts for phase in part.phases if phase.rank in ranks],
        versions=first.versions,
        environment=first.environment,
        settings=first.settings,
        problems=[problem for part in parts for problem in part.problems if _stays(problem, ranks)],
        abstained=[row for at, row in enumerate(abstained) if row not in abstained[:at]],
    )


def _stays(problem: Problem, ranks: set[int]) -> bool:
    return problem.what != RANKS_MISSING and (problem.rank is None or problem.rank in ranks)


def numbers(text: str) -> list[int]:
    """Return the ranks that `text` names, like 0,7,64-71. Raises BadInputError if it is malformed."""
    ranks: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if max(len(low), len(high)) > _DIGITS:
            raise BadInputError(
                f"'{part.strip()[:20]}…' is not a rank; give numbers and ranges, like 0,7,64-71."
            )
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise BadInputError(f"'{text}' names no ranks; give numbers and ranges, like 0,7,64-71.")
        if dash and int(high) - int(low) >= MOST_RANKS:
            raise BadInputError(f"{part.strip()} is more than {MOST_RANKS:,} ranks.")
        ranks |= set(range(int(low), int(high or low) + 1))
    return sorted(ranks)
