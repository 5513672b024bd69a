"""The account: a waterfall from the matrix units' measured peak down to the step as it is."""

from __future__ import annotations

from collections.abc import Iterable

from fathom.analysis.results import Part
from fathom.diagnosis.verdict.pieces import Piece


def account_of(pieces: Iterable[Piece]) -> list[Part]:
    """The parts in the waterfall's order, the largest of each stage first; they sum to the pieces' time."""
    total: dict[tuple[int, str, str], float] = {}
    stages: dict[str, int] = {}
    for piece in pieces:
        stage = stages.setdefault(piece.part, piece.stage)  # a finding's rows stay together
        key = (stage, piece.part, piece.owner)
        total[key] = total.get(key, 0.0) + piece.ms
    ordered = sorted(total.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return [Part(part, ms, owner) for (_, part, owner), ms in ordered]
