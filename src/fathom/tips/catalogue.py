"""The tips, as `AREA.yaml` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from fathom.data import load
from fathom.diagnosis import kinds
from fathom.lab import techniques
from fathom.machine.checks import checks

# Areas in the order in which a list shows them, each with the conditions of all its tips.
AREAS: dict[str, tuple[str, ...]] = {
    "os": (),
    "driver": ("gpu",),
    "libraries": (),
    "container": ("container",),
    "kubernetes": ("kubernetes",),
    "data": (),
    "scheduling": (),
    "frameworks": (),
    "allocation": ("gpu",),
    "operators": ("gpu",),
    "memory": ("gpu",),
    "compute": ("gpu",),
    "communication": ("several",),
    "training": ("training",),
    "inference": ("inference",),
    "reliability": (),
    "cost": (),
    "measuring": (),
}
# Conditions of tips, each with the reason that is given where it does not hold.
CONDITIONS = {
    "gpu": "no GPU is used",
    "several": "a single GPU is used, and there is no RDMA device",
    "container": "this is not a container",
    "kubernetes": "this is not Kubernetes",
    "training": "no training step was recorded",
    "inference": "no inference step was recorded",
    "loader": "no data loader was recorded",
}
PLANNED: tuple[str, ...] = ()  # commands that tips refer to and that are still to come


class By(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of Fathom that embody a tip, by id. Only checks and findings can say whether the tip is kept.

    `checks` of the machine, kinds of `findings` and `techniques` of the lab name the tip under `tips`; the
    tip's row names `ceilings` by the gauge that measures them, `measures` of kernels, `commands` of Fathom.
    """

    checks: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    techniques: tuple[str, ...] = ()
    ceilings: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Tip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: what to do (`title`) and why (`text`).

    A failed check or a finding in `by` means that the tip is broken; without either, it is to be read.
    `no_program` is the reason why nothing here can judge it. `applies` are names of CONDITIONS.
    """

    id: str
    title: str
    text: str
    by: By = By()
    no_program: str = ""
    applies: tuple[str, ...] = ()

    @property
    def area(self) -> str:
        """The file that the row is in."""
        return self.id.partition(".")[0]

    @property
    def judged(self) -> bool:
        """Whether a check or a finding can say that it is kept."""
        return bool(self.by.checks or self.by.findings)


@cache
def tips() -> tuple[Tip, ...]:
    """Every tip, area by area: those of the files, then those in the words of the part that embodies them."""
    rows = {f"{area}.{name}": row for area in AREAS for name, row in load("fathom.tips", area).items()}
    for field, part, named, words in _parts():
        for name in named:
            tip = f"{name}.{part.rpartition('.')[2].replace('_', '-')}" if name in AREAS else name
            if name in AREAS:
                rows.setdefault(tip, dict(words))
            elif tip not in rows:
                raise ValueError(f"{part} names the tip {tip}, which is in no file of tips/")
            row = rows[tip]
            row.setdefault("by", {}).setdefault(field, []).append(part)
    return tuple(_tip(area, tip, rows[tip]) for area in AREAS for tip in rows if tip.startswith(f"{area}."))


def _parts() -> Iterator[tuple[str, str, Iterable[str], dict[str, Any]]]:
    """Yield the field of By, the id, the tips and the own words of each check, kind and technique."""
    for check in checks():
        yield "checks", check.id, check.tips, {"title": check.fix.rstrip("."), "text": check.why}
    for kind in kinds().values():
        yield "findings", kind.id, kind.tips, {"title": kind.action, "text": kind.mechanism}
    for technique in techniques().values():
        header = technique.header
        yield "techniques", technique.name, header.tips, {"title": header.title, "text": header.idea}


def _tip(area: str, id: str, row: dict[str, Any]) -> Tip:
    return msgspec.convert({**row, "id": id, "applies": (*AREAS[area], *row.get("applies", ()))}, Tip)
