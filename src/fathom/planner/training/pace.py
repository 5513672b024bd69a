"""The host's time for the operators of a step, from the pace that was measured for each phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from fathom.analysis import BACKWARD, FORWARD, OPTIMIZER, Operators
from fathom.machine import Ceiling, find_ceiling
from fathom.units import MS_PER_S

PHASES = (FORWARD, BACKWARD, OPTIMIZER)
HOST, DEVICE = "host.pace", "pace"  # of operators on the processor, and of those that launch work on a device
# Error of plans of programs, as a logarithm, where stacks show less. On a processor, that of 45 plans on four
# hosts; on a GPU, enough for four of five intervals on each of three hosts (chosen on the same 31 plans).
_IN_PROGRAMS = {HOST: 0.25, DEVICE: 0.34}


@dataclass(frozen=True)
class CallPace:
    """The host's milliseconds for a call of an operator, and the share of them that is outside, before it."""

    ms: float
    outside: float

    @property
    def inside_ms(self) -> float:
        """The milliseconds in the operator."""
        return self.ms * (1 - self.outside)

    def mixed(self, other: CallPace, share: float) -> CallPace:
        """Return a pace between this one and another."""
        inside = self.inside_ms + share * (other.inside_ms - self.inside_ms)
        ms = self.ms + share * (other.ms - self.ms)
        return CallPace(ms, 1 - inside / ms if ms else 0.0)


@dataclass(frozen=True)
class PhasePace:
    """The host's pace in a phase: of operators by name, of all `others`, and its milliseconds beside them."""

    others: CallPace
    named: Mapping[str, CallPace] = field(default_factory=dict)
    fixed: float = 0.0

    def of(self, name: str) -> CallPace:
        """Return the pace of an operator."""
        return self.named.get(name, self.others)

    def among(self, cold: PhasePace, share: float) -> PhasePace:
        """Return the pace if a `share` of the code is as far away as for the cold pace."""
        named = {name: pace.mixed(cold.of(name), share) for name, pace in self.named.items()}
        return PhasePace(
            self.others.mixed(cold.others, share), named, self.fixed + share * (cold.fixed - self.fixed)
        )


@dataclass(frozen=True)
class Pace:
    """The host's ms for a step's operators; `spread`: each phase's error elsewhere, as a logarithm."""

    operators: Operators
    phases: Mapping[str, PhasePace]
    spread: Mapping[str, float] = field(default_factory=dict)

    def total(self, phase: str) -> float:
        """Return the host's milliseconds in a phase."""
        pace = self.phases[phase]
        return pace.fixed + sum(count * pace.of(name).ms for name, count in self._counts(phase))

    def inside(self, phase: str) -> float:
        """Return the milliseconds in operators."""
        pace = self.phases[phase]
        return sum(count * pace.of(name).inside_ms for name, count in self._counts(phase))

    @property
    def outside(self) -> float:
        """Return the milliseconds outside operators."""
        return sum(self.total(phase) - self.inside(phase) for phase in self.phases)

    @property
    def error(self) -> float:
        """Return the expected error in milliseconds if the pace of all phases is off alike."""
        return sum(self.total(phase) * share for phase, share in self.spread.items())

    def called(self, name: str) -> float:
        """Return the milliseconds of one call of an operator, without its work."""
        counts = {phase: self.operators.counts.get((name, phase), 0.0) for phase in PHASES}
        inside = {phase: self.phases[phase].of(name).inside_ms for phase in PHASES}
        if not any(counts.values()):
            return min(inside.values())
        return sum(inside[phase] * count for phase, count in counts.items()) / sum(counts.values())

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
    measured = {phase: find_ceiling(ceilings, f"{kind}.{name}", device) for phase, name in names.items()}
    known = {phase: ceiling for phase, ceiling in measured.items() if ceiling}
    if len(known) < len(names):
        return None
    by_name = {phase: known[phase] for phase in PHASES if phase != OPTIMIZER or not operators.at_once}
    evicted = _evicted(by_name, operators)
    phases = {phase: _phase(ceiling, operators.parameters, evicted) for phase, ceiling in by_name.items()}
    if operators.at_once:
        phases[OPTIMIZER] = _at_once(known[OPTIMIZER], operators)
    widest = max(ceiling.at.get("spread", 0.0) for ceiling in known.values())
    spread = {  # none is measured on lists
        phase: max(_IN_PROGRAMS[kind], ceiling.at.get("spread", widest)) for phase, ceiling in known.items()
    }
    return Pace(operators, phases, spread)


def _evicted(measured: Mapping[str, Ceiling], operators: Operators) -> float:
    """Return the share of a step's code that its other code evicts from the nearest caches.

    The cold pace was measured with the code of all stacks. A step with fewer different operators has less.
    """
    own = sum(phase in measured for _, phase in operators.counts)
    return min(1.0, own / max(1, sum(len(ceiling.series) for ceiling in measured.values())))


def _phase(ceiling: Ceiling, parameters: float, evicted: float) -> PhasePace:
    near = _regime(ceiling, "value", "", parameters)
    return (
        near.among(_regime(ceiling, "cold", "cold_", parameters), evicted) if "cold" in ceiling.at else near
    )


def _regime(ceiling: Ceiling, key: str, prefix: str, parameters: float) -> PhasePace:
    """Return the pace of a phase that the stacks had alone, or in turns."""
    at, rows = (cast(Mapping[str, float], ceiling.at), cast(Sequence[Mapping[str, float]], ceiling.series))
    named = {
        str(row["name"]): _call(row.get(key, row["value"]), row.get(f"{prefix}python"))
        for row in rows
        if "name" in row
    }
    fixed = at.get(f"{prefix}step", 0.0) + parameters * at.get(f"{prefix}parameter", 0.0)
    return PhasePace(_call(at.get(key, ceiling.value), at.get(f"{prefix}python")), named, MS_PER_S * fixed)


def _at_once(ceiling: Ceiling, operators: Operators) -> PhasePace:
    """Return the pace of an optimizer that handles all parameters at once, which is measured per parameter.

    Of the measured optimizers of its name, or else of all, it is the one with the most similar number of
    operators on lists.
    """
    rows = [row for row in ceiling.series if "calls" in row]
    own = [row for row in rows if row["name"] == operators.optimizer] or rows
    nearest = min(own, key=lambda row: abs(row["calls"] - operators.on_lists), default=None)
    at = nearest or {**ceiling.at, "value": ceiling.value}
    seconds = at.get("step", 0.0) + at.get("parameter", at["value"]) * operators.parameters
    return PhasePace(_call(seconds / max(1.0, operators.total(OPTIMIZER)), at.get("python")))


def _call(seconds: float, outside: object) -> CallPace:
    share = min(1.0, max(0.0, float(outside))) if isinstance(outside, (int, float)) else 0.0
    return CallPace(MS_PER_S * seconds, share)
