"""The host's pace: its seconds for each operator that PyTorch runs, in the phases of a training step.

Small stacks of several kinds of layers train on tensors so small that their work takes no time beside the
calls. Each phase of their steps is timed without waiting for the device. `torch.profiler` records the same
phase, and its times divide the phase among the operators: nested ones and the engine's nodes too, as
recordings of programs count them. Recording lengthens each operator by the same time, which is subtracted.

forward, backward    per operator; the forward pass ends with the loss
optimizer            per operator of an optimizer that handles one parameter after another
foreach, fused       per parameter of an optimizer that handles all of them at once

The value is the mean over all operators, and the series has those of each name, with the Python before them.
`at` has the operators or parameters, as `python` the share of the time outside operators, as `step` the
seconds of a phase beside its operators, and as `parameter` those for each parameter. Autograd's engine calls
operators without Python.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

import numpy as np

from fathom.gauges.catalogue import PACES
from fathom.gauges.gpu import effort
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best, ceiling
from fathom.gauges.stacks import CLASSES, KINDS, Kind
from fathom.gauges.timer import Run, Sample, sample
from fathom.machine import Ceiling
from fathom.machine.model import Setting
from fathom.units import US_PER_S

FORWARD, BACKWARD, OPTIMIZER, FOREACH, FUSED = PACES
BUDGET_S = 0.25  # of an optimizer that handles all parameters at once
STACK_S, WARM_S = 0.04, 0.01  # of a phase of one stack
WARM_STEPS, PROFILED, SKIPPED = 10, 3, 1  # steps; the profiler's first one is slow
DEEP = 4  # layers of the stack whose optimizer handles all parameters at once
LEAST = 0.05  # of an operator's recorded time is left, at least, once that of recording is subtracted
POINTS = 9  # quantiles of the samples

Phase = Callable[[], object]
Seconds = Callable[[], float]  # a clock
Named = dict[str, float]  # seconds by the name of an operator


@dataclass
class Profiled:
    """A recorded phase: its operators by name, the seconds in them and outside before them, and the rest."""

    operators: Counter[str] = field(default_factory=Counter)
    inside: Named = field(default_factory=partial(defaultdict, float))
    outside: Named = field(default_factory=partial(defaultdict, float))
    rest_s: float = 0.0  # before the first operator and after the last one

    @property
    def outside_s(self) -> float:
        """The seconds outside operators."""
        return sum(self.outside.values()) + self.rest_s

    @property
    def seconds(self) -> float:
        """The seconds of the phase."""
        return sum(self.inside.values()) + self.outside_s

    def share(self, name: str) -> float:
        """Return the share of an operator's time that is outside, before it."""
        both = self.inside[name] + self.outside[name]
        return self.outside[name] / both if both else 0.0


class PacedStack:
    """A small stack of layers on a device, and its step in phases.

    `options` are those of the optimizer: whether it handles each parameter, or all of them at once.
    """

    def __init__(
        self, torch: Any, device: str, kind: Kind = KINDS[0], layers: int | None = None, **options: bool
    ) -> None:
        self.torch = torch
        torch.manual_seed(0)
        parts, x, self.run = kind.layers(torch, layers) if layers else kind.layers(torch)
        self.parts, self.x = parts.to(device), x.to(device)
        self.parameters = list(self.parts.parameters())
        momentum = {} if kind.momentum is None else {"momentum": kind.momentum}
        made = getattr(torch.optim, kind.optimizer)
        self.optimizer = made(self.parameters, lr=1e-4, **momentum, **options)
        with torch.no_grad():
            rows = self.run(self.parts, self.x).shape[0]
        self.y = torch.randint(CLASSES, (rows,), device=device)
        self.loss: Any = None

    def forward(self) -> None:
        """Run the layers and the loss."""
        self.loss = self.torch.nn.functional.cross_entropy(self.run(self.parts, self.x), self.y)

    def backward(self) -> None:
        """Run autograd's engine."""
        self.loss.backward()

    def optimize(self) -> None:
        """Update the parameters, and drop their gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def steps(self) -> dict[str, Phase]:
        """The functions of a step in order, by phase."""
        return {FORWARD: self.forward, BACKWARD: self.backward, OPTIMIZER: self.optimize}

    def timed(self, phase: str, clock: Seconds) -> Run:
        """Return a function that runs a number of steps, and returns the seconds of this phase in them."""

        def run(count: int) -> float:
            total = 0.0
            for _ in range(count):
                for name, work in self.steps.items():
                    started = clock()
                    work()
                    total += (clock() - started) if name == phase else 0.0
            return total

        return run

    def profiled(self) -> dict[str, Profiled]:
        """Record a few steps, and return the quickest pass of each phase."""
        profiler = self.torch.profiler
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as recorded:
                for _ in range(PROFILED):
                    for name, work in self.steps.items():
                        with profiler.record_function(f"fathom {name}"):
                            work()
            events = list(recorded.events())
        return {name: _quickest(_passes(events, f"fathom {name}")) for name in self.steps}


def _quickest(passes: Iterator[Profiled]) -> Profiled:
    known = list(passes)
    if not known or not known[0].operators:
        raise NotHereError("torch.profiler records no operators here")
    return min(known[SKIPPED:] or known, key=lambda seen: seen.seconds)


def _passes(events: Sequence[Any], mark: str) -> Iterator[Profiled]:
    """Yield the recorded passes of a phase: the operators that begin within each annotation of this name."""
    ops = sorted((e for e in events if not e.is_user_annotation), key=_start)
    for span in sorted((e.time_range for e in events if e.name == mark), key=lambda span: span.start):
        yield _pass(
            span, ops[bisect_left(ops, span.start, key=_start) : bisect_left(ops, span.end, key=_start)]
        )


def _start(event: Any) -> float:
    return float(event.time_range.start)


def _pass(span: Any, ops: Sequence[Any]) -> Profiled:
    """Return the operators of a phase; time in which none runs counts for the next one."""
    seen, until = Profiled(), span.start
    for event in ops:
        seen.operators[event.name] += 1
        seen.inside[event.name] += event.self_cpu_time_total / US_PER_S
        if event.cpu_parent is None or event.cpu_parent.is_user_annotation:
            gap = max(0.0, event.time_range.start - until) / US_PER_S
            if until == span.start:
                seen.rest_s += gap
            else:
                seen.outside[event.name] += gap
            until = max(until, event.time_range.end)
    seen.rest_s += max(0.0, span.end - until) / US_PER_S
    return seen


@dataclass(frozen=True)
class Paced:
    """A phase of one stack: recorded, and its seconds without recording."""

    seen: Profiled
    taken: Sample
    parameters: int

    def shares(self) -> tuple[Named, float]:
        """Return the seconds of each name's operators and of the rest, which add up to the phase.

        Recording an operator costs the same for all. None keeps less than a share of its recorded time.
        """
        seen, taken = self.seen, self.taken.median
        cost = max(0.0, seen.seconds - taken) / seen.operators.total()
        each = Named()
        for name, count in seen.operators.items():
            recorded = seen.inside[name] + seen.outside[name]
            each[name] = max(LEAST * recorded, recorded - cost * count)
        factor = taken / (sum(each.values()) + seen.rest_s)
        return {name: factor * value for name, value in each.items()}, factor * seen.rest_s


def pace(name: str, phase: str, torch: Any, device: str, job: GaugeJob, clock: Seconds) -> Ceiling:
    """Return the ceiling `name`: the host's seconds per operator of a phase, or per parameter of an
    optimizer that handles all of them at once.
    """
    with torch.enable_grad():
        if phase in (FOREACH, FUSED):
            return _at_once(name, phase, torch, device, job, clock)
        stacks = [
            Paced(seen[phase], _taken(stack, phase, STACK_S, job, clock), len(stack.parameters))
            for stack, seen in _stacks(torch, device)
        ]
    return _by_operator(name, phase, stacks)


@cache
def _stacks(torch: Any, device: str) -> list[tuple[PacedStack, dict[str, Profiled]]]:
    """Return a stack of each kind with its recorded phases, for all gauges of this process."""
    stacks = [PacedStack(torch, device, kind, foreach=False) for kind in KINDS]
    return [(stack, _warm(stack).profiled()) for stack in stacks]


def _warm(stack: PacedStack) -> PacedStack:
    for _ in range(WARM_STEPS):
        for work in stack.steps.values():
            work()
    return stack


def _taken(stack: PacedStack, phase: str, budget_s: float, job: GaugeJob, clock: Seconds) -> Sample:
    return sample(stack.timed(phase, clock), effort(job, budget_s, sample_s=1e-6, warm_s=WARM_S))


def _at_once(name: str, phase: str, torch: Any, device: str, job: GaugeJob, clock: Seconds) -> Ceiling:
    stack = _warm(PacedStack(torch, device, KINDS[0], DEEP, **{phase: True}))
    taken, seen = _taken(stack, OPTIMIZER, BUDGET_S, job, clock), stack.profiled()[OPTIMIZER]
    count = len(stack.parameters)
    at = {"parameters": count, "python": round(seen.outside_s / seen.seconds, 3)}
    each = tuple(seconds / count for seconds in taken.seconds)
    return best(name, [Measurement(at, Sample(each, taken.repetitions))])


def _by_operator(name: str, phase: str, stacks: Sequence[Paced]) -> Ceiling:
    """Return the ceiling of a phase from all stacks, with the seconds of each operator by name."""
    counts, seconds, python = Counter[str](), defaultdict[str, float](float), defaultdict[str, float](float)
    rests = list[float]()
    for stack in stacks:
        each, rest = stack.shares()
        rests.append(rest)
        counts.update(stack.seen.operators)
        for op, value in each.items():
            seconds[op] += value
            python[op] += value * stack.seen.share(op) if phase != BACKWARD else 0.0  # the engine's own time
    fixed, parameter = _rest(phase, rests, [stack.parameters for stack in stacks])
    outside = sum(python.values()) + (sum(rests) if phase != BACKWARD else 0.0)
    at = {
        "operators": counts.total(),
        "python": round(outside / sum(stack.taken.median for stack in stacks), 3),
        "step": fixed,
        "parameter": parameter,
    }
    series = [
        {"name": op, "value": seconds[op] / count, "python": round(python[op] / seconds[op], 3)}
        for op, count in sorted(counts.items())
    ]
    return ceiling(name, Measurement(at, _added(stacks, counts.total())), cast(list[Setting], series))


def _added(stacks: Sequence[Paced], operators: int) -> Sample:
    """Return the seconds per operator of all stacks: the sums of the quantiles of their samples."""
    quantiles = [np.quantile(stack.taken.seconds, np.linspace(0.0, 1.0, POINTS)) for stack in stacks]
    return Sample(tuple(float(value) / operators for value in np.sum(quantiles, axis=0)), 1)


def _rest(phase: str, rests: Sequence[float], parameters: Sequence[int]) -> tuple[float, float]:
    """Return the seconds of a phase beside its operators: of the step, and of each parameter.

    An optimizer goes through its parameters before and after its operators.
    """
    if phase != OPTIMIZER:
        return float(np.median(rests)), 0.0
    slope, fixed = np.polyfit(parameters, rests, 1)
    return max(0.0, float(fixed)), max(0.0, float(slope))
