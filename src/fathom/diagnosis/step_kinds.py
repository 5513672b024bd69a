"""Kinds of steps over all ranks, and the requested one."""

from __future__ import annotations

import math

from msgspec.structs import replace

from fathom import analysis
from fathom.analysis import Abstained, Account
from fathom.analysis.results import StepKind, step_noun
from fathom.diagnosis.ranks import total
from fathom.errors import BadInputError

MOST_STEPS = 500  # to record at random; for rarer kinds a step is named


def kinds_of_ranks(accounts: list[Account]) -> list[StepKind]:
    """Return the kinds of steps of the first rank that has any, with the throughput of all ranks."""
    each = [analysis.step_kinds(a) for a in accounts]
    first = next((kinds for kinds in each if kinds), [])
    for kind in first:
        alike = [next((k for k in kinds if k.name == kind.name), None) for kinds in each]
        kind.samples_per_s = total([k.samples_per_s if k else None for k in alike])
        kind.tokens_per_s = total([k.tokens_per_s if k else None for k in alike])
    return first


def named(kinds: list[StepKind], wanted: str | None) -> StepKind | None:
    """Return the kind with that name or number; None if unasked or the ledger's. Raises BadInputError."""
    if wanted is None:
        return None
    kind = next((kind for kind in kinds if kind.name == wanted), None)
    if kind is None and wanted.isdecimal() and 1 <= int(wanted) <= len(kinds):
        kind = kinds[int(wanted) - 1]
    if kind is None:
        known = ", ".join(f"{kind.name} ({number})" for number, kind in enumerate(kinds, 1))
        instead = f"use one of: {known}" if known else "the recording has no steps"
        raise BadInputError(f"There is no kind of step {wanted!r}; {instead}.")
    return None if kind.used else kind


def of_ledger(kinds: list[StepKind], other: StepKind) -> list[StepKind]:
    """Return the kinds with `other` as the ledger's kind; their order and numbers do not change."""
    return [replace(kind, used=kind is other) for kind in kinds]


def lacking(kinds: list[StepKind], accounts: list[Account]) -> list[Abstained]:
    """Why a kind has no clean step or no ledger, if there are several kinds."""
    if len(kinds) < 2:
        return []
    recorded = any(account.devices for account in accounts)
    return [
        *(Abstained(f"clean {step_noun(kind.name)}", kind.why) for kind in kinds if kind.why),
        *(
            Abstained(f"ledger of {step_noun(kind.name)}s", _absent(kind, kinds))
            for kind in kinds
            if recorded and not kind.windows
        ),
    ]


def _absent(kind: StepKind, kinds: list[StepKind]) -> str:
    """Return that no step of a kind was recorded, and how to record one: rare ones by their number."""
    every = math.ceil(sum(other.n for other in kinds) / kind.n) if kind.n else MOST_STEPS
    steps = max(50, 3 * every)
    if steps > MOST_STEPS:
        return "none of them fell into the timeline; record one by its number, with `fathom run --at STEP`"
    return (
        f"none of them fell into the timeline, and they are one step in {every:,}; record more steps, "
        f"as with `fathom run --steps {steps}`"
    )
