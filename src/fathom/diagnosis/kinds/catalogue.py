"""The catalogue of kinds of findings, read once."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

import msgspec

from fathom.data import load
from fathom.errors import BadInputError

OF_STEPS = ("input", "host", "framework", "kernels", "communication", "device", "numbers")
OF_REQUESTS = "serving"
GROUPS = (*OF_STEPS, OF_REQUESTS)


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of finding. `techniques` lists the lab techniques that fix it, most specific first; if there
    are none, `no_technique` gives the reason. `gpu` lists those that need a GPU, for kinds that programs
    without one can have.

    `bound` lists the verdicts that this cause can lead to, most common first; kinds on requests have none.
    `action` is the remedy in one sentence. `trial` is the part of the program that `fathom run --what-if`
    disables to measure the gain.
    """

    id: str
    group: str
    title: str
    mechanism: str
    shows: str
    remedy: str
    references: tuple[str, ...]
    techniques: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    no_technique: str = ""
    trial: str | None = None
    bound: tuple[str, ...] = ()
    action: str = ""
    account: str = ""  # the part of the account that its claims belong to, if not that of their row

    def technique(self, processor: bool = False) -> str | None:
        """Return the most specific technique, on a `processor` of those without a GPU, or None."""
        return next((name for name in self.techniques if not (processor and name in self.gpu)), None)


@cache
def kinds() -> dict[str, Kind]:
    """All kinds by id, group by group."""
    rows = [{"group": group, **row} for group in GROUPS for row in load(__package__, group)]
    return {kind.id: kind for kind in msgspec.convert(rows, list[Kind])}


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
