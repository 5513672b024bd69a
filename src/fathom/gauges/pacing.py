"""The host's pace: its seconds for each operator that PyTorch runs, in the phases of a training step.

A stack of standard layers trains on tensors so small that their work takes no time beside the calls. Each
phase of its step is timed without waiting for the device, and divided by the operators that
`torch.profiler` records in it: nested ones and the engine's nodes too, as recordings of programs count them.

forward, backward    per operator; the forward pass ends with the loss
optimizer            per operator of an optimizer that handles one parameter after another
foreach, fused       per parameter of an optimizer that handles all of them at once

`at` has the operators or parameters, and as `python` the share of the time outside operators. Autograd's
engine calls them without Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from fathom.gauges.catalogue import PACES
from fathom.gauges.gpu import effort
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, best
from fathom.gauges.timer import Run, Sample, sample
from fathom.machine import Ceiling
from fathom.units import US_PER_S

LAYERS, WIDTH, HEADS, TOKENS, BATCH, CLASSES = 4, 16, 2, 4, 1, 16
FORWARD, BACKWARD, OPTIMIZER, FOREACH, FUSED = PACES
BUDGET_S = 0.25
WARM_STEPS, PROFILED = 10, 3  # steps

Phase = Callable[[], object]
Seconds = Callable[[], float]  # a clock


class Profiled(NamedTuple):
    """The operators of a phase, and its seconds in and outside them: profiling lengthens both."""

    operators: int
    inside_s: float
    outside_s: float


class PacedStack:
    """A small stack of standard layers on a device, and its step in phases.

    `optimizer` are options of AdamW: whether it handles each parameter, or all of them at once.
    """

    def __init__(self, torch: Any, device: str, layers: int = LAYERS, **optimizer: bool) -> None:
        self.torch, self.layers = torch, layers
        torch.manual_seed(0)
        self.parts = _parts(torch, device, layers)
        self.parameters = [p for part in self.parts.values() for p in part.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, **optimizer)
        self.tokens = torch.randint(CLASSES, (BATCH, TOKENS), device=device)
        self.loss: Any = None

    def forward(self) -> None:
        """Run the layers and the loss."""
        x = self.parts["embedding"](self.tokens)
        for layer in range(self.layers):
            x = x + self._attended(self.parts[f"norm {layer}"](x), layer)
            x = x + self.parts[f"network {layer}"](x)
        logits = self.parts["head"](x).flatten(0, 1)
        self.loss = self.torch.nn.functional.cross_entropy(logits, self.tokens.flatten())

    def _attended(self, x: Any, layer: int) -> Any:
        heads = self.parts[f"query {layer}"](x).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        y = self.torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.parts[f"out {layer}"](y.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))

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

    def profiled(self, phase: str) -> Profiled:
        """Run one step, and return the operators of this phase and its seconds in and outside them."""
        result: Profiled | None = None
        for name, work in self.steps.items():
            if name == phase:
                result = _profiled(self.torch, work)
            else:
                work()
        assert result is not None
        return result


def _parts(torch: Any, device: str, layers: int) -> dict[str, Any]:
    nn = torch.nn
    parts = {"embedding": nn.Embedding(CLASSES, WIDTH), "head": nn.Linear(WIDTH, CLASSES)}
    for layer in range(layers):
        parts[f"norm {layer}"] = nn.LayerNorm(WIDTH)
        parts[f"query {layer}"] = nn.Linear(WIDTH, 3 * WIDTH)
        parts[f"out {layer}"] = nn.Linear(WIDTH, WIDTH)
        wide = nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        parts[f"network {layer}"] = nn.Sequential(nn.LayerNorm(WIDTH), *wide)
    return {name: part.to(device) for name, part in parts.items()}


def _profiled(torch: Any, work: Phase) -> Profiled:
    """Return the operators that the profiler records in `work`, and the seconds in and outside them."""
    profiler = torch.profiler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as recorded:
            started = perf_counter()
            work()
            taken = perf_counter() - started
        events = [event for event in recorded.events() if not event.is_user_annotation]
    if not events:
        raise NotHereError("torch.profiler records no operators here")
    inside = _covered_s(events)
    return Profiled(len(events), inside, max(0.0, taken - inside))


def _covered_s(events: list[Any]) -> float:
    """Return the seconds in which at least one operator runs, on any thread."""
    covered = until = 0.0
    for start, end in sorted((event.time_range.start, event.time_range.end) for event in events):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered / US_PER_S


def pace(name: str, phase: str, torch: Any, device: str, job: GaugeJob, clock: Seconds) -> Ceiling:
    """Return the ceiling `name`: the host's seconds per operator of a phase, or per parameter of an
    optimizer that handles all of them at once.
    """
    at_once = phase in (FOREACH, FUSED)
    of = OPTIMIZER if at_once else phase
    with torch.enable_grad():
        stack = PacedStack(torch, device, **({phase: True} if at_once else {"foreach": False}))
        run = stack.timed(of, clock)
        run(WARM_STEPS)
        seen = [stack.profiled(of) for _ in range(PROFILED)]
        taken = sample(run, effort(job, BUDGET_S, sample_s=1e-6))
    pieces = len(stack.parameters) if at_once else seen[0].operators
    inside, outside = min(step.inside_s for step in seen), min(step.outside_s for step in seen)
    at = {
        "parameters" if at_once else "operators": pieces,
        "python": 0.0 if of == BACKWARD else round(outside / (inside + outside), 3),
    }
    each = Sample(tuple(seconds / pieces for seconds in taken.seconds), taken.repetitions)
    return best(name, [Measurement(at, each)])
