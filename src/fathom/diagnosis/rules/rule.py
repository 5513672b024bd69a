"""Rules, and the candidates that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module
from pkgutil import walk_packages

import msgspec
from msgspec.structs import replace

from fathom.analysis.results import Claim, Evidence
from fathom.diagnosis.kinds import declared
from fathom.diagnosis.signals import Signals


class Candidate(msgspec.Struct, frozen=True):
    """A finding before its gain is known.

    `changes` are applied in a replay (`fathom what-if`); `part` is the share of their gain due to this cause.
    Without changes, `gain_ms` is the gain. `doubt` is the possible error of the model of the fixed program,
    as a share of the gain. `confidence`, from 0 to 1, is the probability that the cause is present. If the
    gain exceeds `claims`, the rest is claimed from rows with the entries `spill`. With `given` changes, the
    gain is the difference that `changes` make beyond them; a cause that is only visible because of another
    one gains nothing. With `graphed` changes, CUDA graphs replace the launches of the fixed program too.
    """

    kind: str = ""  # the kind of its rule, which may leave it out unless it has several
    claims: list[Claim] = []
    evidence: list[Evidence] = []
    changes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    graphed: tuple[str, ...] = ()
    spill: tuple[str, ...] = ()
    part: float = 1.0
    gain_ms: float | None = None
    doubt: float = 0.2
    confidence: float = 0.9
    check: str = ""
    remedy: str = ""  # replaces the kind's remedy if the recording allows a more specific one
    title: str = ""  # replaces the kind's title, as a remedy does
    action: str = ""  # likewise
    mechanism: str = ""  # replaces the kind's mechanism if it works otherwise in this recording
    source: str | None = None
    module: str | None = None
    family: str | None = None
    region: str | None = None
    costless: bool = False  # reported even if it costs no time, or an unknown time
    unpredicted: str = ""  # the reason why nobody knows how much
    general: bool = False  # claims what is left by causes with rows, before causes without rows
    least: float = 0.0  # share of the step: no finding if the lower bound of its gain is below


class NotAnalysed(msgspec.Struct, frozen=True):
    """A kind that a rule could not analyse in this recording; `why` names what is missing."""

    why: str
    kind: str = ""  # as in a candidate


Candidates = Iterable[Candidate]
Outcomes = Iterable[Candidate | NotAnalysed]


class Rule(msgspec.Struct, frozen=True):
    """`look` yields candidates of the `kinds`, or nothing if a signal that it needs is unknown."""

    kinds: tuple[str, ...]
    look: Callable[[Signals], Outcomes]


_RULES: list[Rule] = []


def rule(*kinds: str) -> Callable[[Callable[[Signals], Outcomes]], Callable[[Signals], Outcomes]]:
    """Register a rule that finds these kinds. The only kind of a rule is that of all its outcomes."""
    only = kinds[0] if len(kinds) == 1 else ""

    def register(look: Callable[[Signals], Outcomes]) -> Callable[[Signals], Outcomes]:
        @wraps(look)
        def named(signals: Signals) -> Outcomes:
            return (outcome if outcome.kind else replace(outcome, kind=only) for outcome in look(signals))

        _RULES.append(Rule(kinds, named))
        return named

    return register


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules; each module of this package registers its own."""
    import fathom.diagnosis.rules as package

    for module in walk_packages(package.__path__, package.__name__ + "."):
        import_module(module.name)
    return tuple(sorted(_RULES, key=lambda registered: registered.kinds))


@cache
def needs() -> dict[str, list[str]]:
    """For each kind, the signals without which its rule runs but may miss it; the kind is then not analysed.

    Those that a rule reads as signals["name"] need no row: it abstains by itself if they are unknown.
    """
    return declared("needs")
