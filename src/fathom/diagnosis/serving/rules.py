"""The rules of rules.yaml: which facts raise a finding, and which change removes its cause."""

from __future__ import annotations

from functools import cache

import msgspec

from fathom.data import load
from fathom.diagnosis.serving.replay import Change

LEAST = 0.02  # of the mean request: findings that save less are not worth a change
FEWEST = 8  # requests


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of rules.yaml."""

    id: str
    claims: list[str]
    when: dict[str, float]
    change: Change
    unless: list[str] = []


@cache
def rules() -> list[Rule]:
    """Return the rules in order: the first of several causes of one entry comes first."""
    return msgspec.convert(load(__package__, "rules"), list[Rule])
