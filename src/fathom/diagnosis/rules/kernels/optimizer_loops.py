"""Optimizers that go parameter by parameter, torch's and those that the program has written itself."""

from __future__ import annotations

import re
from collections import Counter

from fathom.diagnosis.rules.rule import (
    LAUNCHING,
    Candidate,
    Evidence,
    Found,
    claims_of,
    family_totals,
    rule,
    shrink,
    usual,
)
from fathom.diagnosis.signals import Signals, Work

TORCHS, LISTS = re.compile(r"Optimizer\.step#"), re.compile(r"_fused_|_foreach_")
WHOLE = (
    0.1  # of the host's time in the optimizer, which calls a few ops instead of a dozen for each parameter
)
UPDATES = re.compile(r"aten::(add|sub|mul|div|lerp|addcmul|addcdiv|copy)_$")
ELEMENTWISE = re.compile(r"elementwise_kernel")
OTHERS = re.compile(r"^(autograd::|Optimizer\.)|_foreach_|_fused_")
MANY = 40  # kernels a step: fewer are launched in no time
PIECES = 3  # kernels for each parameter at least: one alone is a moving average
FUSED = 0.3  # of the device's time: parameters, gradients and moments pass through memory once


@rule("kernels-for-loop-optimizer")
def optimizer_loops(signals: Signals) -> Found:
    """Torch's are told by their region, others by changing tensors of all parameters' shapes in place."""
    works = signals["kernels.work"]
    torchs = [one for one in works if TORCHS.search(one.path) and not LISTS.search(one.path)]
    if sum(one.count for one in torchs) >= MANY:
        yield _candidate(torchs, works, [f"op:Optimizer.step={WHOLE}"])
    elementwise = [one for one in works if _elementwise(one)]
    if not elementwise or not any(one.path.startswith("autograd::") for one in works):
        return
    gradients = signals["kernels.gradients"]
    by_source: dict[str, list[Work]] = {}
    for one in elementwise:
        by_source.setdefault(one.source or "", []).append(one)
    for source, mine in by_source.items():
        own = [one for one in mine if _shape(one) in gradients]
        if source and updates_all(own, gradients):
            yield _candidate(own, works, _host(own, works, signals.get("host.ops").value or {}))


def _elementwise(one: Work) -> bool:
    return bool(ELEMENTWISE.search(one.family)) and OTHERS.search(one.path) is None


def _shape(one: Work) -> tuple[int, ...]:
    return tuple(one.sizes[0]) if one.sizes else ()


def updates_all(mine: list[Work], gradients: Counter[tuple[int, ...]]) -> bool:
    """Whether as many tensors of each shape are changed in place as there are gradients of it."""
    changed: Counter[tuple[int, ...]] = Counter()
    for one in mine:
        if UPDATES.search(one.op):
            changed[_shape(one)] += round(one.count)
    count = sum(one.count for one in mine)
    every = all(changed[shape] >= number for shape, number in gradients.items())
    return bool(gradients) and every and count >= max(MANY, PIECES * sum(gradients.values()))


def _host(mine: list[Work], works: list[Work], calls: dict[str, float]) -> list[str]:
    """Without its ops, and the Python between them by their share of what the forward pass launches."""
    names: dict[str, float] = {}
    for one in mine:
        names[one.op] = names.get(one.op, 0.0) + one.count
    forward = sum(one.count for one in works if not one.path.startswith("autograd::"))
    share = min(sum(names.values()) / forward, 1.0)
    ops = [f"op:{name}={1 - min(names[name] / calls[name], 1.0):.6f}" for name in names if calls.get(name)]
    return [*ops, f"python={1 - share:.6f}"]


def _candidate(mine: list[Work], works: list[Work], host: list[str]) -> Candidate:
    return Candidate(
        kind="kernels-for-loop-optimizer",
        claims=claims_of(mine, 1 - FUSED),
        evidence=[
            Evidence("kernels that update parameters one by one", sum(one.count for one in mine), "a step"),
            Evidence("they take", sum(one.ms for one in mine), "ms a step"),
        ],
        changes=(*shrink(mine, family_totals(works), FUSED), *host),
        spill=LAUNCHING,
        doubt=0.2,
        confidence=0.85,
        check="torch.optim with fused=True, or torch._foreach_ over all parameters, and time the step",
        source=usual((one.source, one.ms) for one in mine),
        module=usual((one.module, one.ms) for one in mine),
        family=usual((one.family, one.ms) for one in mine),
    )
