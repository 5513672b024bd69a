"""Tests for side effects of a call: caches, reused buffers, threads, settings, inspection of callers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fathom.referee.child import guards, inspection
from fathom.referee.child.values import digest, is_tensor, kind, leaves, raw

if TYPE_CHECKING:
    from fathom.referee.child.side import Side

Reasons = Iterator[tuple[str, str]]
M_PERTURB = -6  # mallopt parameter: glibc fills allocated memory with this byte's complement
FREED, ALLOCATED = 0xA5, 0x5A
LONGEST_CHANCE = 16  # consecutive bytes of the pattern that cannot be a coincidence


def examine(side: Side, seeds: list[int]) -> Reasons:
    """Yield a (reason, detail) pair for each side effect found. `seeds` are three different seeds."""
    if "inputs" in side.setup_calls:
        yield "work-at-setup", "inputs were made while the module was imported"
    yield from _repeats(side, seeds)
    yield from _watched(side, seeds[2])
    yield from _seeding(side, seeds[0])
    yield from _early(side, seeds[1])
    yield from _background()
    yield from left_changed(side)


def left_changed(side: Side) -> Reasons:
    """Yield the functions and settings that were changed."""
    for reason, name in guards.replaced(side.functions):
        yield reason, f"{name} was replaced"
    for name in guards.changed(side.settings, guards.settings()):
        yield "global-state", f"{name} was changed"
    if not side.unchanged_inputs():
        yield "global-state", "the function that makes the inputs was changed"


def _poison(side: Side) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_PERTURB, FREED)
    if side.bench.device == "cuda":
        side.bench.poison()


def _repeats(side: Side, seeds: list[int]) -> Reasons:
    """Check that a call with new values in the same memory recomputes, and keeps the earlier result."""
    side.place(seeds[:1])
    _poison(side)  # after the inputs, whose creation leaves free blocks of the size of a result
    late = side.go(check=True)["late"]
    if late:
        yield late, "its result changed after it had returned"
        return
    first = side.results[0]
    before = digest(first)
    yield from _unwritten(side, first)
    side.place(seeds[1:2])
    side.go()
    second = side.results[0]
    if digest(first) != before:
        yield "reused-output", "a later call overwrites the result of an earlier one"
    elif inspection.shared(first, second):
        yield "cached-result", "calls with different inputs return the same memory"
    fresh = side.fresh(seeds[1])
    again = side.target(*fresh[0], **fresh[1])
    if digest(first) == before and inspection.shared(second, again):
        yield "cached-result", "a call with equal inputs returns the memory of the earlier result"


def _unwritten(side: Side, result: Any) -> Reasons:
    poisoned = _nan if side.bench.device == "cuda" else _patterned
    for place, leaf in leaves(result):
        if (kind(leaf) == "array" or is_tensor(leaf)) and poisoned(leaf):
            yield "unwritten-output", f"{place} holds memory that was never written"


def _nan(leaf: Any) -> bool:
    return bool(is_tensor(leaf) and leaf.is_floating_point() and leaf.isnan().any())


def _patterned(leaf: Any) -> bool:
    """Return whether the value has a long run of poison bytes."""
    data = raw(leaf)
    return any(bytes([byte]) * LONGEST_CHANCE in data for byte in (FREED, ALLOCATED))


def _watched(side: Side, seed: int) -> Reasons:
    args, kwargs = side.fresh(seed)
    side.peeking.on = True
    with inspection.RecordedCalls(side.wanted, side.key) as calls:
        side.target(*args, **kwargs)
    side.peeking.on = False
    for name in sorted(calls.seen):
        yield "calls-baseline", f"it calls the {name}"
    for event in sorted(side.peeking.seen):
        yield "detects-referee", f"it inspects its surroundings ({event})"


def _seeding(side: Side, seed: int) -> Reasons:
    """Yield generators that the call seeds: they end in the same state after starting in different ones."""
    args, kwargs = side.fresh(seed)
    states = []
    for number in (seed + 1, seed + 2):
        guards.seed_everything(number)
        side.target(*args, **kwargs)
        states.append(guards.random_state())
    names = ("random", "numpy.random", "torch")
    for name, first, other in zip(names, *states, strict=False):
        if first == other:
            yield "global-state", f"the random numbers of {name} are seeded"


def _early(side: Side, seed: int) -> Reasons:
    """On a GPU, detect work that does not wait for the current stream, and so reads inputs too early."""
    if side.bench.device != "cuda":
        return
    result = side.bench.early(side.target, side.slots[0], side.fresh(seed))
    if any(_nan(leaf) for _, leaf in leaves(result)):
        yield "side-stream", "work on another stream does not wait for the inputs"


def _background() -> Reasons:
    if inspection.still_working() > inspection.BUSY:
        yield "background-work", "threads go on computing after the call returned"
    if inspection.working_children():
        yield "background-work", "child processes go on computing after the call returned"
