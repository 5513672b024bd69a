"""Check the names in changes, and describe the limits of a prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from fathom.analysis.replay.changes import DEVICE, LATE, NAMED, Change
from fathom.analysis.replay.model import Model
from fathom.analysis.replay.part import Part
from fathom.analysis.replay.weights import changes_something, named_pieces
from fathom.errors import BadInputError, no_match


def check(model: Model, changes: Sequence[Change]) -> None:
    """Raise BadInputError if a pattern matches nothing in the recording."""
    for change in changes:
        if change.selector == LATE and int(change.pattern) not in model.timelines:
            raise BadInputError(f"Rank {change.pattern} was not recorded; use one of the recorded ranks.")
        if (
            change.pattern
            and change.selector != LATE
            and model.parts
            and not any(_named(part, change) for part in model.parts)
        ):
            what = {"family": "kernel family", "op": "op"}.get(change.selector, change.selector)
            message = no_match(what, change.pattern, _largest(model.parts, change))
            raise BadInputError(message + _as_op(model.parts, change))


def _as_op(parts: Iterable[Part], change: Change) -> str:
    """Return the advice to name an op, where one has the name that was given for device work."""
    op = replace(change, selector="op")
    return f" An op matches; write '{op}'." if any(_named(part, op) for part in parts) else ""


def _named(part: Part, change: Change) -> bool:
    if change.selector == "op":
        return any(change.matches(name) for name in part.team.ops["name"].unique().to_list())
    rows = named_pieces(part, change)
    kinds = DEVICE[change.selector]
    return bool((rows & part.pieces.of_kind(*kinds) if kinds else rows).any())


def _largest(parts: Iterable[Part], change: Change) -> list[str]:
    """Return the names with the most time, as suggestions."""
    total: dict[str, float] = {}
    for part in parts:
        for name, ns in _op_times(part) if change.selector == "op" else _piece_times(part, change):
            total[name] = total.get(name, 0.0) + ns
    return sorted(total, key=lambda name: -total[name])


def _op_times(part: Part) -> Iterable[tuple[str, float]]:
    ops = part.team.ops
    length = (ops["end_ns"] - ops["start_ns"]).to_list()
    return zip(ops["name"].to_list(), length, strict=True)


def _piece_times(part: Part, change: Change) -> Iterable[tuple[str, float]]:
    pieces = part.pieces
    of_copies = change.selector == "copy"
    names, codes = (pieces.directions, pieces.direction) if of_copies else (pieces.families, pieces.family)
    kinds = DEVICE[change.selector]
    length = np.where(pieces.of_kind(*kinds), pieces.length, 0) if kinds else pieces.length
    spent = np.bincount(codes, length, len(names)).tolist()
    return ((name, ns) for name, ns in zip(names, spent, strict=True) if ns > 0)


def notes(model: Model, rank: int, changes: Sequence[Change]) -> list[str]:
    """Return sentences on the limits of the prediction."""
    mine = [part for part in model.parts if part.rank == rank]
    sentences = [
        f"the recording has nothing that {change} applies to"
        for change in changes
        if change.selector not in NAMED and not any(changes_something(part, change) for part in mine)
    ]
    if any(change.selector == "op" for change in changes) and any(len(part.pieces.start) for part in mine):
        sentences.append("op:NAME changes the host's time in ops; family:NAME changes their kernels")
    if any((part.pieces.of_kind("collective") & ~part.pieces.met).any() for part in mine):
        sentences.append(
            "collectives wait as long as they did, because the arrival of their peers is unknown"
        )
    for fact, text in _FACTS.items():
        count = sum(part.facts.get(fact, 0.0) for part in mine)
        if count:
            sentences.append(text.format(int(count)))
    return sentences


_FACTS = {
    "late starts unexplained": "device work that began late for an unknown reason stays late (count: {})",
    "event waits undetermined": "waits of streams for unknown work are left out of the replay (count: {})",
    "synchronisations undetermined": "calls that waited for unknown work keep their length (count: {})",
}
