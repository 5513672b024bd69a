"""Assign rows of a fold to kernel families: alone, as a group, or as a pool of launch shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fathom.analysis.folding.results import Pool
from fathom.analysis.folding.states import IDLE, Members
from fathom.analysis.intervals import Array

if TYPE_CHECKING:  # its modules are only needed to fold
    from fathom.analysis.folding.fold import Folded

ALONE = 0.02  # least share of a family's time in which it runs alone, to represent it
GROUP = 0.05  # least share of a family's time in a set of concurrent families that gets rows
ENOUGH = 0.25  # least information, in samples that lie wholly within the family
LONGEST = 3  # most families that the name of a group lists
REST = "others"
AND = " + "  # between the families of a group


class Resolved(NamedTuple):
    """A family or group `name` with the values of column `column` of the fold."""

    name: str
    column: int


def resolve(
    folded: Folded, members: list[Members], times: Array, labels: list[str]
) -> tuple[list[Resolved], list[tuple[str, str]]]:
    """Return the columns that describe families, and (family, reason) for each family without one.

    `times` are ns by state, `members` the families of each state, `labels` the names of the families. A
    family that also runs alone is described by that time; a family that never does, by the groups in which it
    runs, "A + B". The same holds for families that samples always show in the same proportion.
    """
    by_state = {state: column for column, states in enumerate(folded.columns) for state in states}
    columns: dict[int, None] = {}
    silent = []
    for family, label in enumerate(labels):
        mine = [state for state, running in enumerate(members) if family in running and times[state] > 0]
        if not mine:
            continue
        alone, groups = _chosen(family, mine, members, times, by_state)
        chosen = [*alone, *groups]
        resolved = [column for column in alone if _enough(folded, column)]
        resolved = resolved or [column for column in groups if _enough(folded, column)]
        if resolved:
            columns |= dict.fromkeys(resolved)
        else:
            silent.append((label, _why(folded, chosen)))
    return [Resolved(_name(folded.columns[c], members, times, labels), c) for c in columns], silent


def _chosen(
    family: int, mine: list[int], members: list[Members], times: Array, by_state: dict[int, int]
) -> tuple[list[int], list[int]]:
    """Return the column in which a family runs alone, if any, and the columns of its main groups."""
    total = sum(times[state] for state in mine)
    alone = [s for s in mine if members[s] == (family,) and times[s] >= ALONE * total]
    groups = [s for s in mine if s not in alone and times[s] >= GROUP * total]
    return [by_state[s] for s in alone], [by_state[s] for s in sorted(groups, key=lambda s: -times[s])]


def _enough(folded: Folded, column: int) -> bool:
    return column != folded.rest and bool(folded.information[column].max(initial=0.0) >= ENOUGH)


def _why(folded: Folded, chosen: list[int]) -> str:
    if not chosen:
        return "it runs beside ever different kernels, and seldom alone"
    if set(chosen) == {folded.rest}:
        return "so many different mixtures of kernels ran that its rare ones cannot be distinguished"
    samples = int(max(folded.samples[column] for column in chosen))
    worth = max(folded.information[column].max(initial=0.0) for column in chosen)
    if not samples:
        return "no sample fell on it"
    return f"its {samples} samples are worth {worth:.1f} samples of it alone; record more steps"


def _name(states: list[int], members: list[Members], times: Array, labels: list[str]) -> str:
    """Return the joined names of the states' families, in order of falling time."""
    weight: dict[int, float] = {}
    for state in states:
        for family in members[state]:
            weight[family] = weight.get(family, 0.0) + float(times[state])
    ordered = [labels[family] for family in sorted(weight, key=lambda family: (-weight[family], family))]
    if IDLE in states and ordered:
        ordered.append("idle")
    if len(ordered) > LONGEST:
        ordered = [*ordered[:LONGEST], REST]
    return AND.join(dict.fromkeys(ordered))


Counts = Mapping[str, int]  # counters by family


def rare_of(resolved: Counts, sampled: Counts) -> set[str]:
    """Return the families for which less than half of the counters are resolved."""
    most = max(sampled.values(), default=0)
    return {family for family in sampled if 2 * resolved.get(family, 0) < most}


def passing_of(sampled: Counts) -> set[str]:
    """Return the families that did not run while some of the counters were sampled."""
    most = max(sampled.values(), default=0)
    return {family for family, count in sampled.items() if count < most}


def pools_of(
    functions: Mapping[str, tuple[str, str]], rare: set[str], passing: set[str], device: int
) -> list[Pool]:
    """Return one device's pools: the rare and passing shapes of each function (kind, name) with rare ones.

    For example, copies of a cache that grows with every token always have a new grid, so each launch shape
    gets too few samples, or runs only during the bursts of one group. The shapes of the function are then
    folded as one family.
    """
    shapes: dict[tuple[str, str], list[str]] = {}
    for family, function in functions.items():
        if family in rare | passing:
            shapes.setdefault(function, []).append(family)
    names = [name for _, name in shapes]
    return [
        Pool(device, f"{name}, {len(own)} launch shapes", tuple(own))
        for (_, name), own in shapes.items()
        if len(own) > 1 and rare.intersection(own) and names.count(name) == 1
    ]


def by_family(pools: Sequence[Pool], device: int | None) -> dict[str, str]:
    """Return the label of the pool of each pooled family of a device."""
    return {family: pool.label for pool in pools if pool.device == device for family in pool.families}
