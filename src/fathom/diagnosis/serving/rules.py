"""The rules of kinds under `requests`: which facts raise a finding, and which change removes its cause."""

from __future__ import annotations

from functools import cache

import msgspec

from fathom.diagnosis.kinds import declared
from fathom.diagnosis.serving.replay import Change

LEAST = 0.02  # of the mean request: findings that save less are not worth a change
FEWEST = 8  # requests


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cause that lengthens requests. `claims` are entries of the requests' ledger.

    `when` are facts (facts.py) with the least value that raises the finding; `change` is the remedy as a
    replay of the recorded requests makes it, which predicts the gain. `unless` lists kinds that explain it.
    """

    id: str
    claims: list[str]
    when: dict[str, float]
    change: Change
    unless: list[str] = []


@cache
def rules() -> list[Rule]:
    """Return the rules in order: the first of several causes of one entry comes first."""
    rows = [{"id": kind, **row} for kind, row in declared("requests").items()]
    return msgspec.convert(rows, list[Rule])
