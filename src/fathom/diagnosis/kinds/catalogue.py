"""The catalogue of kinds of findings, read once."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from fathom.data import load
from fathom.errors import BadInputError
from fathom.lab import naming

OF_STEPS = ("input", "host", "framework", "kernels", "communication", "device", "numbers")
OF_REQUESTS = "serving"
GROUPS = (*OF_STEPS, OF_REQUESTS)
# Parts of a row that rules read: conditions in four forms, rules of the dive that show the kind, and signals.
OF_RULES = ("ops", "measures", "syncs", "requests", "dive", "needs")


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of finding. `no_technique` gives the reason if no technique of the lab fixes it.

    `bound` lists the verdicts that this cause can lead to, most common first; kinds on requests have none.
    `action` is the remedy in one sentence. `trial` is the part of the program that `fathom run --what-if`
    disables to measure the gain. `tips` are those that the finding breaks (`fathom.tips`).
    """

    id: str
    group: str
    title: str
    mechanism: str
    shows: str
    remedy: str
    references: tuple[str, ...]
    tips: tuple[str, ...]
    no_technique: str = ""
    trial: str | None = None
    bound: tuple[str, ...] = ()
    action: str = ""
    account: str = ""  # the part of the account that its claims belong to, if not that of their row

    @property
    def techniques(self) -> tuple[str, ...]:
        """The techniques whose headers name it, most specific first."""
        return tuple(technique.name for technique in naming(self.id))

    def technique(self, processor: bool = False) -> str | None:
        """Return the most specific technique, on a `processor` of those without a GPU, or None."""
        return next((t.name for t in naming(self.id) if not (processor and t.needs.gpu)), None)


@cache
def _rows() -> list[dict[str, Any]]:
    return [{"group": group, **row} for group in GROUPS for row in load(__package__, group)]


@cache
def kinds() -> dict[str, Kind]:
    """All kinds by id, group by group."""
    rows = [{name: row[name] for name in row if name not in OF_RULES} for row in _rows()]
    return {kind.id: kind for kind in msgspec.convert(rows, list[Kind])}


def described(kind: Kind) -> dict[str, Any]:
    """Return the kind and its techniques, those that need a `gpu` again, for JSON."""
    needing = [technique.name for technique in naming(kind.id) if technique.needs.gpu]
    return {**msgspec.to_builtins(kind), "techniques": kind.techniques, "gpu": needing}


def declared(part: str) -> dict[str, Any]:
    """Return one of OF_RULES by kind, for the kinds whose rows have it, in the order of the rows."""
    return {row["id"]: row[part] for row in _rows() if part in row}


@cache
def kinds_of_steps() -> dict[str, Kind]:
    """The kinds that are looked for in steps, by id: all but those on requests."""
    return {name: kind for name, kind in kinds().items() if kind.group in OF_STEPS}


def kind_called(name: str, listing: str) -> Kind:
    """Return the kind with this id. Raises BadInputError; `listing` is how the caller lists all kinds."""
    if name not in kinds():
        similar = ", ".join(resembling(name)[:5])
        instead = f"similar ones: {similar}" if similar else listing
        raise BadInputError(f"There is no kind of finding {name[:60]!r}; {instead}.")
    return kinds()[name]


def resembling(name: str) -> list[str]:
    """Return ids that contain `name` or are spelled similarly, best match first."""
    holding = [kind for kind in kinds() if name.lower() in kind]
    return list(dict.fromkeys([*holding, *get_close_matches(name.lower(), kinds(), n=5, cutoff=0.4)]))
