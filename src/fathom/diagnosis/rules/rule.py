"""What a rule is, and what it returns."""

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

LAUNCHING = (Entry.DISPATCHING, Entry.LAUNCH_LATENCY, Entry.PYTHON)  # rows that fewer launches shrink
MOST_FAMILIES = 32  # of one change: each is looked for among all names, and small ones hardly count


class Candidate(msgspec.Struct, frozen=True):
    """A finding before its gain is known.

    `changes` are what a replay changes (`fathom what-if`), `part` the share of their gain that is this
    cause's. Without changes `gain_ms` is the gain itself. `doubt` is how wrong the model of the mended
    program may be, as a share of the gain. `confidence` is the rule's own, 0 to 1, that the cause is there.
    What the gain exceeds `claims` by is claimed of rows with the entries `spill`. With `given` changes the
    gain is what `changes` add to them: a cause that only shows because of another one gains nothing.
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
    remedy: str = ""  # in place of the kind's, where the recording says more
    source: str | None = None
    module: str | None = None
    family: str | None = None
    region: str | None = None
    costless: bool = False  # it is told though it costs no time
    general: bool = False  # it claims what causes with rows of their own leave, before those without
    least: float = 0.0  # of the step: it is no finding where the lower end of its gain is below


class Unlooked(msgspec.Struct, frozen=True):
    """A kind that a rule could not look for in this recording; `why` names what is missing."""

    kind: str
    why: str


Found = Iterable[Candidate]
Looked = Iterable[Candidate | Unlooked]


class Rule(msgspec.Struct, frozen=True):
    """`look` yields candidates of the `kinds`; a signal that it needs and is not known makes it abstain."""

    kinds: tuple[str, ...]
    look: Callable[[Signals], Looked]


_RULES: list[Rule] = []


def rule(*kinds: str) -> Callable[[Callable[[Signals], Looked]], Callable[[Signals], Looked]]:
    """Register a rule that finds these kinds."""

    def register(look: Callable[[Signals], Looked]) -> Callable[[Signals], Looked]:
        _RULES.append(Rule(kinds, look))
        return look

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule: each module below this package registers its own."""
    import fathom.diagnosis.rules as package

    for module in walk_packages(package.__path__, package.__name__ + "."):
        import_module(module.name)
    return tuple(sorted(_RULES, key=lambda registered: registered.kinds))


@cache
def needs() -> dict[str, list[str]]:
    """Rows of needs.yaml: by kind, signals without which its rule does not fail but may miss it."""
    return load(__package__, "needs")


def claims_of(works: Iterable[Work], share: float = 1.0) -> list[Claim]:
    """The rows that some device work takes, those of one row together; `share` of each."""
    taken: dict[tuple[str, str], float] = {}
    for work in works:
        taken[work.entry, work.family] = taken.get((work.entry, work.family), 0.0) + share * work.ms
    return [Claim(entry, detail, ms) for (entry, detail), ms in taken.items()]


def shrink(works: Iterable[Work], total: dict[str, float], factor: float) -> tuple[str, ...]:
    """Changes that make this work take `factor` of its time; `total` is what its whole families take."""
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
    """Milliseconds a step by family."""
    total: dict[str, float] = {}
    for work in works:
        total[work.family] = total.get(work.family, 0.0) + work.ms
    return total


def rows(signals: Signals, *entries: str) -> Iterator[Claim]:
    """Whole rows of the ledger with these entries."""
    for row in signals["step.ledger"]:
        if row.entry in entries:
            yield Claim(row.entry, row.detail, row.ms)


def spent(signals: Signals, *entries: str) -> float:
    """Milliseconds a step under these entries."""
    return sum(claim.ms for claim in rows(signals, *entries))


def l2_bytes(signals: Signals) -> int:
    """What the device's cache holds; 0 where it is not known."""
    return (signals.get("device.gpu").value or {}).get("l2_bytes") or 0


def usual(values: Iterable[tuple[str | None, float]]) -> str | None:
    """The name with most weight."""
    weight: dict[str, float] = {}
    for name, ms in values:
        if name is not None:
            weight[name] = weight.get(name, 0.0) + ms
    return max(weight, key=lambda name: weight[name]) if weight else None


def site(works: Collection[Work | Call], *fields: str) -> dict[str, Any]:
    """Where most of the work is, for a Candidate: its `source`, `module` and `family`, or these `fields`."""
    chosen = fields or ("source", "module", "family")
    return {field: usual((getattr(work, field), work.ms) for work in works) for field in chosen}
