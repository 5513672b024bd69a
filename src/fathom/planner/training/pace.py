"""The host's time for the operators of a step, from the pace that was measured for each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fathom.analysis import BACKWARD, FORWARD, OPTIMIZER, Operators
from fathom.machine import Ceiling, find_ceiling
from fathom.units import MS_PER_S

PHASES = (FORWARD, BACKWARD, OPTIMIZER)
HOST, DEVICE = "host.pace", "pace"  # of operators on the processor, and of those that launch work on a device


@dataclass(frozen=True)
class Pace:
    """The host's milliseconds per operator of each phase, and the share of them outside operators."""

    operators: Operators
    each: Mapping[str, float]
    python: Mapping[str, float]

    def total(self, phase: str) -> float:
        """Return the host's milliseconds in a phase."""
        return self.each[phase] * self.operators.total(phase)

    @property
    def outside(self) -> float:
        """Return the milliseconds outside operators."""
        return sum(self.python[phase] * self.total(phase) for phase in PHASES)

    def called(self, name: str) -> float:
        """Return the milliseconds of one call of an operator, without its work."""
        counts = {phase: self.operators.counts.get((name, phase), 0.0) for phase in PHASES}
        calls = sum(counts.values())
        inside = {phase: self.each[phase] * (1 - self.python[phase]) for phase in PHASES}
        if not calls:
            return min(inside.values())
        return sum(inside[phase] * count for phase, count in counts.items()) / calls

    def step(self, work: Mapping[str, float]) -> float:
        """Return the milliseconds of a step whose device work takes `work` by phase.

        The host is ahead or the device waits for it. A program that waits for the device in each step begins
        the next one without a lead.
        """
        if not self.operators.waits:
            return max(sum(map(self.total, PHASES)), sum(work.values()))
        launched = ended = 0.0
        for phase in PHASES:
            launched += self.total(phase)
            ended = max(ended + work.get(phase, 0.0), launched)
        return ended


def pace_of(
    ceilings: Sequence[Ceiling], operators: Operators | None, kind: str, device: int | None
) -> Pace | None:
    """Return the pace of `operators`; None if they or the ceilings of this kind are unknown."""
    if operators is None:
        return None
    names = {FORWARD: FORWARD, BACKWARD: BACKWARD, OPTIMIZER: operators.at_once or OPTIMIZER}
    known = {phase: find_ceiling(ceilings, f"{kind}.{name}", device) for phase, name in names.items()}
    each, python = dict[str, float](), dict[str, float]()
    for phase, ceiling in known.items():
        if ceiling is None:
            return None
        share = ceiling.at.get("python")
        python[phase] = min(1.0, max(0.0, float(share))) if isinstance(share, (int, float)) else 0.0
        each[phase] = MS_PER_S * ceiling.value
    if operators.at_once:  # measured per parameter
        each[OPTIMIZER] *= operators.parameters / max(1.0, operators.total(OPTIMIZER))
    return Pace(operators, each, python)
