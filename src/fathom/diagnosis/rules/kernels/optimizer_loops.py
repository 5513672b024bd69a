"""Optimizers that loop over parameters, from torch or from the program."""

from __future__ import annotations

import math
import re
from collections import Counter

from fathom.analysis.entries import Entry
from fathom.diagnosis.grouping import grouped, summed
from fathom.diagnosis.rules.candidates import (
    LAUNCHING,
    claims_of,
    count_of,
    in_clean_rows,
    mended,
    ms_of,
    on_processor,
    part_of,
    rows,
    site,
)
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Optimizers, Signals, Work

TORCHS = re.compile(r"Optimizer\.step#(?!SparseAdam|LBFGS)")  # these have no other implementation
# On two cores, fused SGD with momentum takes 43 to 53 % of the loop's time, and plain SGD 119 to 174 %.
ADAM = re.compile(r"Optimizer\.step#AdamW?\.")
LISTS = re.compile(r"_fused_|_foreach_")
HOST = 0.1  # of the host's time in the optimizer: a few ops instead of a dozen per parameter
UPDATES = re.compile(r"aten::(add|sub|mul|div|lerp|addcmul|addcdiv|copy)_$")
ELEMENTWISE = re.compile(r"elementwise_kernel")
OTHERS = re.compile(r"^(autograd::|Optimizer\.)|_foreach_|_fused_")
MANY = 40  # kernels per step: launching fewer takes no time
WORTH = 0.02  # of a processor's step, at least
LEFT = 0.25  # of the loop's time on a processor: 12 to 35 % for 12 to 80 parameters of up to 4096 elements
DOUBT = 0.3  # of the gain, beside the deviation of the samples
REMEDY = (
    "torch.optim.AdamW(parameters, lr, fused=True)                # or Adam; not with differentiable=True\n"
)
MECHANISM = """\
On a processor, the optimizer calls a dozen operations for each of its parameters by default, and Python runs
between them. The fused form is one call, which reads and writes parameters, gradients and moments once.
"""
PIECES = 3  # kernels per parameter, at least: a single one is a moving average
FUSED = 0.3  # of the device's time: parameters, gradients and moments are read once


@rule("kernels-for-loop-optimizer")
def optimizer_loops(signals: Signals) -> Candidates:
    """Find torch's optimizers by their region, others by in-place ops on the shapes of all parameters."""
    if on_processor(signals):
        yield from _on_processor(signals)
        return
    works = signals["kernels.work"]
    torchs = [work for work in works if TORCHS.search(work.path) and not LISTS.search(work.path)]
    if count_of(torchs) >= MANY:
        yield _candidate(signals, torchs, [f"op:Optimizer.step={HOST}"])
    elementwise = [work for work in works if _elementwise(work)]
    if not elementwise or not any(work.backward for work in works):
        return
    gradients = signals["kernels.gradients"]
    for source, mine in grouped(elementwise, lambda work: work.source).items():
        own = [work for work in mine if _shape(work) in gradients]
        if source and updates_all(own, gradients):
            yield _candidate(signals, own, _host(own, works, signals.get("host.ops").value or {}))


def _on_processor(signals: Signals) -> Candidates:
    """Find Adam, which calls a dozen ops for each parameter on a processor by default.

    Profilers slow these many short ops more than others, so their time comes from samples of clean steps.
    """
    works = [work for work in signals["host.work"] if ADAM.search(work.path) and not LISTS.search(work.path)]
    updates = count_of(work for work in works if UPDATES.search(work.op))
    if updates < MANY:
        return
    optimizers: Optimizers = signals["host.optimizers"]
    taken = [*claims_of(works), *rows(signals, Entry.PYTHON, share=optimizers.between)]
    room = in_clean_rows(signals, taken)
    gain = min((1 - LEFT) * optimizers.share * signals["step.mean_ms"], room)
    if gain <= 0:
        return
    deviation = math.sqrt((1 - optimizers.share) / optimizers.share / optimizers.samples)
    yield Candidate(
        claims=part_of(taken, gain / room * ms_of(taken)),
        evidence=[
            Evidence("ops that update one parameter", updates, "per step"),
            Evidence("samples of clean steps in the optimizer", 100 * optimizers.share, "%"),
            Evidence("samples of clean steps", optimizers.samples, "samples"),
        ],
        gain_ms=gain,
        doubt=min(DOUBT + deviation, 1.0),
        confidence=0.85,
        check="use the optimizer with fused=True, and time the step",
        action="Use the optimizer with fused=True",
        remedy=REMEDY,
        mechanism=MECHANISM,
        least=WORTH,
        **site(works, "source"),
    )


def _elementwise(work: Work) -> bool:
    return bool(ELEMENTWISE.search(work.family)) and OTHERS.search(work.path) is None


def _shape(work: Work) -> tuple[int, ...]:
    return tuple(work.sizes[0]) if work.sizes else ()


def updates_all(mine: list[Work], gradients: Counter[tuple[int, ...]]) -> bool:
    """Return whether at least as many tensors of each shape are updated in place as have gradients."""
    changed: Counter[tuple[int, ...]] = Counter()
    for work in mine:
        if UPDATES.search(work.op):
            changed[_shape(work)] += round(work.count)
    every = all(changed[shape] >= number for shape, number in gradients.items())
    return bool(gradients) and every and count_of(mine) >= max(MANY, PIECES * sum(gradients.values()))


def _host(mine: list[Work], works: list[Work], calls: dict[str, float]) -> list[str]:
    """Return changes that remove the loop's ops and their share of the Python between launches."""
    names = summed((work.op, work.count) for work in mine)
    share = min(count_of(mine) / count_of(work for work in works if not work.backward), 1.0)
    ops = [f"op:{name}={1 - min(names[name] / calls[name], 1.0):.6f}" for name in names if calls.get(name)]
    return [*ops, f"python={1 - share:.6f}"]


def _candidate(signals: Signals, mine: list[Work], host: list[str]) -> Candidate:
    return mended(
        signals,
        (mine, FUSED),
        host=host,
        evidence=[
            Evidence("kernels that update one parameter", count_of(mine), "per step"),
            Evidence("time of these kernels", ms_of(mine), "ms per step"),
        ],
        spill=LAUNCHING,
        confidence=0.85,
        check="use torch.optim with fused=True, or torch._foreach_ over all parameters, and time the step",
    )
