"""The host's pace: its seconds for each operator that PyTorch runs, in the phases of a training step.

Small stacks of several kinds of layers train on tensors so small that their work takes no time beside the
calls. Each phase of their steps is timed without waiting for the device. `torch.profiler` records the same
phase, and its times divide it among the operators: nested ones and the engine's nodes too, as recordings of
programs count them. Recording takes the same time around each operator: in the one that calls it, or outside
operators. That time is subtracted there.

forward, backward    per operator; the forward pass ends with the loss
optimizer            per operator of an optimizer that handles one parameter after another
foreach, fused       per parameter of an optimizer that handles all of them at once; `step` and `parameter`
                     divide it: the seconds of a step without parameters, and of each one more

The value is the mean over all operators, and the series has those of each name, with the time outside before
them (Python, or autograd's engine) as a share, `python`. `at` has the operators or parameters, the share of
the time outside operators, as `step` the seconds of a phase beside its operators, and as `parameter` those
for each parameter.

Each stack repeats its steps alone, so that its code stays in the nearest caches, and then in turns with all
others, whose code evicts it; the fields of the latter begin with `cold`. `spread` is the error of the cold
pace on a stack that it was not measured on, as a logarithm: the root of the mean square over the stacks, each
planned from the others by the operators that they share.

The series of `foreach` and `fused` has the optimizers by name, with the operators on lists that each calls.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import signature
from time import perf_counter
from typing import Any, cast

import numpy as np

from fathom.gauges.catalogue import PACES
from fathom.gauges.gpu import effort
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, ceiling
from fathom.gauges.stacks import CLASSES, KINDS, Kind
from fathom.gauges.timer import Run, Sample, sample
from fathom.machine import Ceiling
from fathom.machine.model import Setting
from fathom.units import US_PER_S

FORWARD, BACKWARD, OPTIMIZER, FOREACH, FUSED = PACES
BUDGET_S = 0.06  # of an optimizer that handles all parameters at once
WARM_S = 0.01
STACKS_S = 0.8  # of all stacks alone, and in turns
LEAST_TURNS, MOST_TURNS = 5, 300
WARM_STEPS, PROFILED = 5, 5  # steps
SHALLOW, DEEP = 1, 4  # layers of the stacks whose optimizers handle all parameters at once
LEAST = 0.05  # of an operator's recorded time is left, at least, once that of recording is subtracted
POINTS = 9  # quantiles of the samples

Phase = Callable[[], object]
Seconds = Callable[[], float]  # a clock
Named = dict[str, float]  # seconds by the name of an operator
LISTS = ("aten::_foreach_", "aten::_fused_")  # begin the names of operators on lists of tensors


@dataclass
class Profiled:
    """A recorded phase: its operators by name, the seconds in them and outside before them, and the rest.

    `outermost` are those that no other operator calls, and `nested` counts those that each calls itself.
    """

    operators: Counter[str] = field(default_factory=Counter)
    inside: Named = field(default_factory=partial(defaultdict, float))
    outside: Named = field(default_factory=partial(defaultdict, float))
    rest_s: float = 0.0  # before the first operator and after the last one
    outermost: Counter[str] = field(default_factory=Counter)
    nested: Counter[str] = field(default_factory=Counter)

    @property
    def outside_s(self) -> float:
        """The seconds outside operators."""
        return sum(self.outside.values()) + self.rest_s

    @property
    def seconds(self) -> float:
        """The seconds of the phase."""
        return sum(self.inside.values()) + self.outside_s

    def each(self) -> Named:
        """Return the seconds of each name's operators, with those outside before them."""
        return {name: self.inside[name] + self.outside.get(name, 0.0) for name in self.operators}

    def without(self, cost: float) -> Profiled:
        """Return the phase without the `cost` of recording each operator, in seconds.

        The profiler takes the first time when an operator begins and the last when it ends, so its own work
        is outside. None keeps less than a share of its recorded time.
        """
        inside, outside = (
            {name: max(LEAST * value, value - cost * counts[name]) for name, value in seconds.items()}
            for seconds, counts in ((self.inside, self.nested), (self.outside, self.outermost))
        )
        return replace(self, inside=inside, outside=outside)

    def times(self, factor: float) -> Profiled:
        """Return the phase with all seconds multiplied."""
        inside, outside = (
            {name: factor * value for name, value in seconds.items()}
            for seconds in (self.inside, self.outside)
        )
        return replace(self, inside=inside, outside=outside, rest_s=factor * self.rest_s)


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


def profiled(torch: Any, stacks: Sequence[PacedStack], alone: bool = False) -> list[dict[str, Profiled]]:
    """Record a few steps of stacks that take turns or repeat their steps alone, and return their phases."""
    profiler, places = torch.profiler, list(range(len(stacks))) * PROFILED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as recorded:
            for place in sorted(places) if alone else places:
                for name, work in stacks[place].steps.items():
                    with profiler.record_function(_mark(place, name)):
                        work()
        events = list(recorded.events())
    ops = sorted((e for e in events if not e.is_user_annotation), key=_order)
    spans = defaultdict[str, list[Any]](list)
    for event in events:
        spans[event.name].append(event.time_range)
    return [
        {name: _quickest(_passes(spans[_mark(place, name)], ops)) for name in stack.steps}
        for place, stack in enumerate(stacks)
    ]


def _mark(place: int, phase: str) -> str:
    return f"fathom {place} {phase}"


def _quickest(passes: Iterable[Profiled]) -> Profiled:
    """Return the quickest pass: the profiler's clock runs while other processes use the core."""
    known = list(passes)
    if not known or not known[0].operators:
        raise NotHereError("torch.profiler records no operators here")
    return min(known, key=lambda seen: seen.seconds)


def _passes(spans: Sequence[Any], ops: Sequence[Any]) -> Iterator[Profiled]:
    """Yield the passes of a phase: the operators that begin within each of these spans."""
    starts = [_start(event) for event in ops]
    for span in sorted(spans, key=lambda span: span.start):
        yield _pass(span, ops[bisect_left(starts, span.start) : bisect_left(starts, span.end)])


def _start(event: Any) -> float:
    return float(event.time_range.start)


def _order(event: Any) -> tuple[float, float]:
    return _start(event), -float(event.time_range.end)


def _pass(span: Any, ops: Sequence[Any]) -> Profiled:
    """Return the operators of a phase; time in which none runs counts for the next one."""
    seen, until = Profiled(), span.start
    for event in ops:
        seen.operators[event.name] += 1
        seen.inside[event.name] += event.self_cpu_time_total / US_PER_S
        if event.cpu_parent is not None and not event.cpu_parent.is_user_annotation:
            seen.nested[event.cpu_parent.name] += 1
            continue
        seen.outermost[event.name] += 1
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

    def divided(self) -> Profiled:
        """Return the recorded phase without the cost of recording, so that it takes its seconds."""
        seen, taken = self.seen, self.taken.median
        own = seen.without(max(0.0, seen.seconds - taken) / seen.operators.total())
        return own.times(taken / own.seconds)


def pace(name: str, phase: str, torch: Any, device: str, job: GaugeJob, clock: Seconds) -> Ceiling:
    """Return the ceiling `name`: the host's seconds per operator of a phase, or per parameter of an
    optimizer that handles all of them at once.
    """
    with torch.enable_grad():
        if phase in (FOREACH, FUSED):
            return _at_once(name, phase, torch, device, job, clock)
        return _by_operator(name, phase, *_stacks(torch, device, clock, job.pace * STACKS_S)[phase])


@cache
def _stacks(
    torch: Any, device: str, clock: Seconds, budget_s: float
) -> dict[str, tuple[list[Paced], list[Paced]]]:
    """Return the phases of a stack of each kind, alone and in turns, for all gauges of this process."""
    stacks = [PacedStack(torch, device, kind, foreach=False) for kind in KINDS]
    alone = [times for stack in stacks for times in _turns([stack], clock, budget_s / len(stacks))]
    near = _paced(stacks, alone, profiled(torch, stacks, alone=True))
    cold = _paced(stacks, _turns(stacks, clock, budget_s), profiled(torch, stacks))
    return {phase: (near[phase], cold[phase]) for phase in stacks[0].steps}


def _turns(stacks: Sequence[PacedStack], clock: Seconds, budget_s: float) -> list[dict[str, list[float]]]:
    """Return the seconds of each stack's phases while the stacks take turns."""
    seconds = [{phase: list[float]() for phase in stack.steps} for stack in stacks]
    turns, started = 0, perf_counter()
    while turns < WARM_STEPS + LEAST_TURNS or (turns < MOST_TURNS and perf_counter() - started < budget_s):
        for stack, times in zip(stacks, seconds, strict=True):
            for phase, work in stack.steps.items():
                began = clock()
                work()
                times[phase].append(clock() - began)
        turns += 1
    return seconds


def _paced(
    stacks: Sequence[PacedStack],
    seconds: Sequence[dict[str, list[float]]],
    seen: Sequence[dict[str, Profiled]],
) -> dict[str, list[Paced]]:
    """Return all stacks by phase, with their seconds once they are warm."""
    return {
        phase: [
            Paced(passes[phase], Sample(tuple(times[phase][WARM_STEPS:]), 1), len(stack.parameters))
            for stack, times, passes in zip(stacks, seconds, seen, strict=True)
        ]
        for phase in stacks[0].steps
    }


def _warm(stack: PacedStack) -> PacedStack:
    for _ in range(WARM_STEPS):
        for work in stack.steps.values():
            work()
    return stack


def _taken(stack: PacedStack, phase: str, budget_s: float, job: GaugeJob, clock: Seconds) -> Sample:
    return sample(stack.timed(phase, clock), effort(job, budget_s, sample_s=1e-6, warm_s=WARM_S))


def _at_once(name: str, phase: str, torch: Any, device: str, job: GaugeJob, clock: Seconds) -> Ceiling:
    """Return the pace of the first kind's optimizer, and in the series that of each kind's."""
    kinds = [
        KINDS[0]._replace(optimizer=kind.optimizer, momentum=kind.momentum)
        for kind in {(kind.optimizer, kind.momentum): kind for kind in KINDS}.values()
        if phase in signature(getattr(torch.optim, kind.optimizer)).parameters
    ]
    shallow, stacks = (
        [_warm(PacedStack(torch, device, kind, layers, **{phase: True})) for kind in kinds]
        for layers in (SHALLOW, DEEP)
    )
    of_few, taken = (
        [_taken(stack, OPTIMIZER, BUDGET_S / 2, job, clock) for stack in each] for each in (shallow, stacks)
    )
    recorded = profiled(torch, stacks, alone=True)
    usual, *others = [
        _of_optimizer(kind, (len(few.parameters), small.median), len(many.parameters), large, seen[OPTIMIZER])
        for kind, few, small, many, large, seen in zip(
            kinds, shallow, of_few, stacks, taken, recorded, strict=True
        )
    ]
    series = [{**each.at, "value": each.sample.median} for each in (usual, *others)]
    return ceiling(name, usual, cast(list[Setting], series))


def _of_optimizer(
    kind: Kind, few: tuple[int, float], parameters: int, taken: Sample, seen: Profiled
) -> Measurement:
    """Return the seconds of an optimizer per parameter, and those of a step beside them: `few` are the
    parameters and seconds of a smaller stack.
    """
    slope = (taken.median - few[1]) / (parameters - few[0])
    each = min(max(0.0, slope), taken.median / parameters)
    at = {
        "name": kind.optimizer,
        "calls": sum(calls for op, calls in seen.operators.items() if op.startswith(LISTS)),
        "parameters": parameters,
        "python": round(seen.outside_s / seen.seconds, 3),
        "step": max(0.0, taken.median - each * parameters),
        "parameter": each,
    }
    return Measurement(
        at, Sample(tuple(seconds / parameters for seconds in taken.seconds), taken.repetitions)
    )


def _by_operator(name: str, phase: str, alone: Sequence[Paced], turns: Sequence[Paced]) -> Ceiling:
    """Return the ceiling of a phase from all stacks, with the seconds of each operator by name."""
    near, cold = (_Summed([stack.divided() for stack in stacks]) for stacks in (alone, turns))
    parameters = [stack.parameters for stack in alone]
    at = {
        "operators": near.operators.total(),
        **near.beside(phase, parameters),
        **{f"cold_{key}": value for key, value in cold.beside(phase, parameters).items()},
        "cold": cold.seconds.total() / cold.operators.total(),
        "spread": round(_spread(cold.parts), 3),
    }
    series = [
        {
            "name": op,
            **near.pace(op),
            **{"cold" if key == "value" else f"cold_{key}": value for key, value in cold.pace(op).items()},
        }
        for op in sorted(near.operators & cold.operators)
    ]
    measured = Measurement(at, _added(alone, near.operators.total()))
    return ceiling(name, measured, cast(list[Setting], series))


class _Summed:
    """The phase of all stacks."""

    def __init__(self, parts: Sequence[Profiled]) -> None:
        self.parts = parts
        self.operators, self.seconds, self.outside = Counter[str](), Counter[str](), Counter[str]()
        for part in parts:
            self.operators.update(part.operators)
            self.seconds.update(part.each())
            self.outside.update(part.outside)

    def pace(self, op: str) -> dict[str, float]:
        """Return the seconds of an operator, and the share of them outside."""
        seconds = self.seconds[op]
        share = self.outside[op] / seconds if seconds else 0.0
        return {"value": seconds / self.operators[op], "python": round(share, 3)}

    def beside(self, phase: str, parameters: Sequence[int]) -> dict[str, float]:
        """Return the share of the phase outside operators, and its seconds beside them."""
        rests = [part.rest_s for part in self.parts]
        fixed, parameter = _rest(phase, rests, parameters)
        share = (self.outside.total() + sum(rests)) / sum(part.seconds for part in self.parts)
        return {"python": round(share, 3), "step": fixed, "parameter": parameter}


def _spread(parts: Sequence[Profiled]) -> float:
    """Return the error of the pace of operators in other surroundings: that of each stack from the others."""
    errors = [
        error
        for place, part in enumerate(parts)
        if (error := _error(part, [*parts[:place], *parts[place + 1 :]])) is not None
    ]
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0


def _error(part: Profiled, others: Sequence[Profiled]) -> float | None:
    """Return the logarithm of the planned time over the time of the operators that others have too."""
    known, own = _Summed(others), part.each()
    shared = [op for op in own if known.operators[op]]
    if not shared:
        return None
    planned = sum(part.operators[op] * known.seconds[op] / known.operators[op] for op in shared)
    return float(np.log(planned / sum(own[op] for op in shared)))


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
