"""The host's time for the operators of a step, from the pace that was measured for each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fathom.analysis import BACKWARD, FORWARD, OPTIMIZER, Operators
from fathom.machine import Ceiling, find_ceiling
from fathom.units import MS_PER_S

PHASES = (FORWARD, BACKWARD, OPTIMIZER)
HOST, DEVICE = "host.pace", "pace"  # of operators on the processor, and of those that launch work on a device


@dataclass(frozen=True)
class PhasePace:
    """The host's milliseconds per operator of a phase, by name and of all others, and beside operators.

    Shares of an operator's time are Python before it: of each name, and of all others.
    """

    other: float
    python: float
    named: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fixed: float = 0.0

    def of(self, name: str) -> tuple[float, float]:
        """Return the milliseconds of an operator, and the share of them that is Python before it."""
        return self.named.get(name, (self.other, self.python))


@dataclass(frozen=True)
class Pace:
    """The host's milliseconds for the operators of a step."""

    operators: Operators
    phases: Mapping[str, PhasePace]

    def total(self, phase: str) -> float:
        """Return the host's milliseconds in a phase."""
        pace = self.phases[phase]
        return pace.fixed + sum(count * pace.of(name)[0] for name, count in self._counts(phase))

    @property
    def outside(self) -> float:
        """Return the milliseconds outside operators."""
        return sum(
            pace.fixed + sum(count * math.prod(pace.of(name)) for name, count in self._counts(phase))
            for phase, pace in self.phases.items()
        )

    def called(self, name: str) -> float:
        """Return the milliseconds of one call of an operator, without its work."""
        counts = {phase: self.operators.counts.get((name, phase), 0.0) for phase in PHASES}
        calls = sum(counts.values())
        inside = {
            phase: each * (1 - share) for phase in PHASES for each, share in [self.phases[phase].of(name)]
        }
        if not calls:
            return min(inside.values())
        return sum(inside[phase] * count for phase, count in counts.items()) / calls

    def unknown(self) -> float:
        """Return the share of the operators whose pace was not measured by name."""
        counts = self.operators.counts
        missing = (n for (name, phase), n in counts.items() if name not in self.phases[phase].named)
        return sum(missing) / max(1.0, sum(counts.values()))

    def _counts(self, phase: str) -> Iterator[tuple[str, float]]:
        return ((name, count) for (name, of), count in self.operators.counts.items() if of == phase)

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
    phases = dict[str, PhasePace]()
    for phase, name in names.items():
        ceiling = find_ceiling(ceilings, f"{kind}.{name}", device)
        if ceiling is None:
            return None
        phases[phase] = _phase(ceiling, operators.parameters)
    if operators.at_once:  # measured per parameter
        each = operators.parameters / max(1.0, operators.total(OPTIMIZER))
        at_once = phases[OPTIMIZER]
        phases[OPTIMIZER] = PhasePace(at_once.other * each, at_once.python)
    return Pace(operators, phases)


def _phase(ceiling: Ceiling, parameters: float) -> PhasePace:
    named = {
        row["name"]: (MS_PER_S * row["value"], _share(row.get("python")))
        for row in ceiling.series
        if "name" in row
    }
    fixed = ceiling.at.get("step", 0.0) + parameters * ceiling.at.get("parameter", 0.0)
    return PhasePace(MS_PER_S * ceiling.value, _share(ceiling.at.get("python")), named, MS_PER_S * fixed)


def _share(value: object) -> float:
    return min(1.0, max(0.0, float(value))) if isinstance(value, (int, float)) else 0.0
