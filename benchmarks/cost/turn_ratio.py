"""How much longer the steps of one program take than another's, where the two took turns.

A whole run's median holds whatever the host did meanwhile; a turn and the other's turns next to it saw the
same host, but for what changes within a turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from turns import TURN_S

BOUNDARY = 0.7  # of a turn: a step that took longer was interrupted
FEWEST = 5  # steps that tell a turn's median


@dataclass
class Run:
    """One run of a program: its step times in seconds, and the phase of each step where it was recorded.

    `began_s` is when the first step began, on the clock that all processes of the machine share.
    """

    steps_s: list[float]
    phases: dict[int, str]
    began_s: float | None = None


class Turn(NamedTuple):
    """When the whole steps of a turn began and ended, and the median of those that count; in seconds."""

    begin_s: float
    end_s: float
    step_s: float


def turns_of(run: Run, counted: Container[int], turn_s: float = TURN_S) -> list[Turn]:
    """The turns of a run that have enough steps of `counted`; none where its clock is not known."""
    if run.began_s is None:
        return []
    ticks = list(accumulate(run.steps_s, initial=run.began_s))
    interrupted = [k for k, step in enumerate(run.steps_s) if step > BOUNDARY * turn_s]
    result = []
    for last, following in pairwise([-1, *interrupted, len(run.steps_s)]):
        steps = [run.steps_s[k] for k in range(last + 1, following) if k in counted]
        if len(steps) >= FEWEST:
            result.append(Turn(ticks[last + 1], ticks[following], statistics.median(steps)))
    return result


def ratios_of_turns(turns: Sequence[Turn], others: Sequence[Turn], turn_s: float = TURN_S) -> list[float]:
    """Each turn over the mean of the other program's turns just before and just after it.

    A turn without both is left out: what lies between two neighbours is shorter than a turn.
    """
    result = []
    for turn in turns:
        before = [other.step_s for other in others if 0 <= turn.begin_s - other.end_s < turn_s]
        after = [other.step_s for other in others if 0 <= other.begin_s - turn.end_s < turn_s]
        if before and after:
            result.append(turn.step_s / statistics.fmean((before[-1], after[0])))
    return result
