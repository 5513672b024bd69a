"""From states of the device to kernel families: alone, as a group, or abstained."""

from __future__ import annotations

from typing import NamedTuple

from fathom.analysis.folding.fold import Folded
from fathom.analysis.folding.states import IDLE, Members
from fathom.analysis.intervals import Array

ALONE = 0.02  # of a family's time: what it runs alone stands for it from here on
GROUP = 0.05  # of a family's time: a set of families that run together is worth rows of its own
ENOUGH = 0.25  # whole samples' worth of information
LONGEST = 3  # families of a group that are named
REST = "others"
AND = " + "  # between the families of a group


class Told(NamedTuple):
    """Rows of the table are about `name`, from column `column` of the fold."""

    name: str
    column: int


def tell(
    folded: Folded, members: list[Members], times: Array, labels: list[str]
) -> tuple[list[Told], list[tuple[str, str]]]:
    """Which columns tell about which families, and for whom none does: (family, why).

    A family that also runs alone is told by that. One that never does is told by the groups in which it
    runs, "A + B"; so are families of which the samples always show the same parts.
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
        told = [column for column in alone if _enough(folded, column)]
        told = told or [column for column in groups if _enough(folded, column)]
        if told:
            columns |= dict.fromkeys(told)
        else:
            silent.append((label, _why(folded, chosen)))
    return [Told(_name(folded.columns[c], members, times, labels), c) for c in columns], silent


def _chosen(
    family: int, mine: list[int], members: list[Members], times: Array, by_state: dict[int, int]
) -> tuple[list[int], list[int]]:
    """The column in which a family runs alone, if it does, and those of the groups that it mostly runs in."""
    whole = sum(times[state] for state in mine)
    alone = [s for s in mine if members[s] == (family,) and times[s] >= ALONE * whole]
    groups = [s for s in mine if s not in alone and times[s] >= GROUP * whole]
    return [by_state[s] for s in alone], [by_state[s] for s in sorted(groups, key=lambda s: -times[s])]


def _enough(folded: Folded, column: int) -> bool:
    return column != folded.rest and bool(folded.information[column].max(initial=0.0) >= ENOUGH)


def _why(folded: Folded, chosen: list[int]) -> str:
    if not chosen:
        return "it runs beside ever different kernels, and seldom alone"
    if set(chosen) == {folded.rest}:
        return "so many different mixtures of kernels ran that its rare ones cannot be told apart"
    samples = int(max(folded.samples[column] for column in chosen))
    worth = max(folded.information[column].max(initial=0.0) for column in chosen)
    if not samples:
        return "no sample fell on it"
    return f"its {samples} samples tell no more than {worth:.1f} whole ones would; record more steps"


def _name(states: list[int], members: list[Members], times: Array, labels: list[str]) -> str:
    """The families of the states, those with most time first."""
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
