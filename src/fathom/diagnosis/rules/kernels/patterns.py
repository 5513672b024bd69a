"""Kinds that are recognised by ops or kernel names: `ops` in their rows."""

from __future__ import annotations

import re

import msgspec

from fathom.diagnosis.kinds import declared
from fathom.diagnosis.rules.candidates import PLACE, mended, ms_of, number_of_kernels
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Device work whose cause is recognised by its ops or its family.

    `path`, `family`: patterns; `not`: ops that must not be in the path; `same_dtype`: only if the op's first
    two tensors have one dtype; `factor`: share of its time once fixed; `doubt`: possible error of `factor`,
    as a share of the time saved; `says`: the evidence, before its time in ms per step; `check`: how to check
    the gain.
    """

    factor: float
    says: str
    check: str
    path: str = ""
    family: str = ""
    excluded: str = msgspec.field(name="not", default="")
    same_dtype: bool = False
    doubt: float = 0.2


ROWS = msgspec.convert(declared("ops"), dict[str, Row])


@rule(*ROWS)
def patterns(signals: Signals) -> Candidates:
    """Assign each piece of work to the first row that matches."""
    heads = signals.get("kernels.repeated_heads").value or []  # have their own finding
    left = [work for work in signals["kernels.work"] if work not in heads]
    for kind, row in ROWS.items():
        mine = [work for work in left if _fits(row, work)]
        left = [work for work in left if work not in mine]
        if mine:
            yield mended(
                signals,
                (mine, row.factor),
                kind=kind,
                place=PLACE,
                evidence=[Evidence(row.says, ms_of(mine), "ms per step"), number_of_kernels(mine)],
                doubt=row.doubt,
                check=row.check,
            )


def _fits(row: Row, work: Work) -> bool:
    if row.excluded and re.search(row.excluded, work.path):
        return False
    if row.same_dtype and len(set(work.types[:2])) != 1:
        return False
    return bool(re.search(row.path, work.path) and re.search(row.family, work.family))
