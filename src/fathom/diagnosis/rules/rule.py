"""Rules, and the candidates that they return."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec

from fathom.analysis.entries import Entry
from fathom.analysis.results import Claim, Evidence
from fathom.data import load
from fathom.diagnosis.signals import Call, Signals, Work

LAUNCHING = (Entry.DISPATCHING, Entry.LAUNCH_LATENCY, Entry.PYTHON)  # entries that shrink with fewer launches
MOST_FAMILIES = 32  # in one change: each is matched against all names, and small ones hardly count


class Candidate(msgspec.Struct, frozen=True):
    """A finding before its gain is known.

    `changes` are applied in a replay (`fathom what-if`); `part` is the share of their gain due to this cause.
    Without changes, `gain_ms` is the gain. `doubt` is the possible error of the model of the fixed program,
    as a share of the gain. `confidence`, from 0 to 1, is the rule's belief that the cause is present.
    If the gain exceeds `claims`, the rest is claimed from rows with the entries `spill`. With `given`
    changes, the gain is what `changes` add to them: a cause that only shows because of another one gains
    nothing.
    """

    kind: str
    claims: list[Claim]
    evidence: list[Evidence]
    changes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    spill: tuple[str, ...] = ()
    part: float = 1.0
    gain_ms: float | None = None
    doubt: float = 0.2
    confidence: float = 0.9
    check: str = ""
    remedy: str = ""  # replaces the kind's remedy if the recording allows a more specific one
    source: str | None = None
    module: str | None = None
    family: str | None = None
    region: str | None = None
    costless: bool = False  # reported although it costs no time
    general: bool = False  # claims what is left by causes with rows, before causes without rows
    least: float = 0.0  # share of the step: no finding if the lower bound of its gain is below


class NotAnalysed(msgspec.Struct, frozen=True):
    """A kind that a rule could not analyse in this recording; `why` names what is missing."""

    kind: str
    why: str


Candidates = Iterable[Candidate]
Outcomes = Iterable[Candidate | NotAnalysed]


class Rule(msgspec.Struct, frozen=True):
    """`look` yields candidates of the `kinds`; it abstains if a signal that it needs is unknown."""

    kinds: tuple[str, ...]
    look: Callable[[Signals], Outcomes]


_RULES: list[Rule] = []


def rule(*kinds: str) -> Callable[[Callable[[Signals], Outcomes]], Callable[[Signals], Outcomes]]:
    """Register a rule that finds these kinds."""

    def register(look: Callable[[Signals], Outcomes]) -> Callable[[Signals], Outcomes]:
        _RULES.append(Rule(kinds, look))
        return look

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """All rules: each module of this package registers its rules."""
    import fathom.diagnosis.rules as package

    for module in walk_packages(package.__path__, package.__name__ + "."):
        import_module(module.name)
    return tuple(sorted(_RULES, key=lambda registered: registered.kinds))


@cache
def needs() -> dict[str, list[str]]:
    """Rows of needs.yaml: for each kind, signals without which its rule runs but may miss it."""
    return load(__package__, "needs")


def claims_of(works: Iterable[Work], share: float = 1.0) -> list[Claim]:
    """Claims of `share` of the work, summed by row of the ledger."""
    taken: dict[tuple[str, str], float] = {}
    for work in works:
        taken[work.entry, work.family] = taken.get((work.entry, work.family), 0.0) + share * work.ms
    return [Claim(entry, detail, ms) for (entry, detail), ms in taken.items()]


def shrink(works: Iterable[Work], total: dict[str, float], factor: float) -> tuple[str, ...]:
    """Changes that make the work take `factor` of its time; `total` holds the time of each family."""
    largest = sorted(claims_of(works), key=lambda claim: -claim.ms)[:MOST_FAMILIES]
    return tuple(
        _smaller(claim, claim.ms / total[claim.detail], factor)
        for claim in largest
        if claim.detail and total.get(claim.detail)
    )


def _smaller(claim: Claim, share: float, factor: float) -> str:
    name = f"family:{claim.detail}"
    if claim.entry == Entry.COPY:
        name = "family:Memset" if claim.detail == "set" else f"copy:{claim.detail}"
    return f"{name}={max(1.0 - min(share, 1.0) * (1.0 - factor), 0.0):.6f}"


def family_totals(works: Iterable[Work]) -> dict[str, float]:
    """Milliseconds per step of each family."""
    total: dict[str, float] = {}
    for work in works:
        total[work.family] = total.get(work.family, 0.0) + work.ms
    return total


def rows(signals: Signals, *entries: str) -> Iterator[Claim]:
    """Claims of all of the ledger's rows with these entries."""
    for row in signals["step.ledger"]:
        if row.entry in entries:
            yield Claim(row.entry, row.detail, row.ms)


def spent(signals: Signals, *entries: str) -> float:
    """Milliseconds per step of these entries."""
    return sum(claim.ms for claim in rows(signals, *entries))


def l2_bytes(signals: Signals) -> int:
    """Size of the device's L2 cache in bytes; 0 if unknown."""
    return (signals.get("device.gpu").value or {}).get("l2_bytes") or 0


def usual(values: Iterable[tuple[str | None, float]]) -> str | None:
    """The name with the largest total weight; None without names."""
    weight: dict[str, float] = {}
    for name, ms in values:
        if name is not None:
            weight[name] = weight.get(name, 0.0) + ms
    return max(weight, key=lambda name: weight[name]) if weight else None


def site(works: Collection[Work | Call], *fields: str) -> dict[str, Any]:
    """Where most of the work is, for a Candidate: its `source`, `module` and `family`, or these `fields`."""
    chosen = fields or ("source", "module", "family")
    return {field: usual((getattr(work, field), work.ms) for work in works) for field in chosen}
