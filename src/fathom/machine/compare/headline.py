"""The comparison in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from fathom.machine.compare.facts import Facts
from fathom.machine.compare.results import CHECK, KEPT, LOST, Difference, Kind, Side

MOST_CAUSES = 3


def summary(machine: Facts) -> str:
    """Summarise a machine in a few words: its GPUs, or its processor if it has none."""
    names = [gpu.name or "unknown GPU" for gpu in machine.gpus]
    if not names:
        return f"no GPU, {machine.host.cpu.model or 'unknown CPU'}"
    return ", ".join(f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names))


def headline(a: Side, b: Side, kinds: Sequence[Kind], differences: Sequence[Difference]) -> str:
    """Say in one to three sentences what does not carry over and why, what to check, and what does."""
    lost, check, kept = ([k.what for k in kinds if k.severity == s] for s in (LOST, CHECK, KEPT))
    if len(kept) == len(kinds):
        return f"Everything compared carries over from {a.name} to {b.name}."
    sentences = []
    if lost:
        what = "nothing carries" if len(lost) == len(kinds) else f"{_list(lost)} {_do(lost)} not carry"
        sentences.append(f"From {a.name} to {b.name} {what} over: {_reason(a, b, differences)}.")
    if check:
        sentences.append(f"Check again{'' if lost else f' from {a.name} to {b.name}'}: {_list(check)}.")
    if kept:
        sentences.append(f"What carries over: {_list(kept)}.")
    return " ".join(sentences)


def _reason(a: Side, b: Side, differences: Sequence[Difference]) -> str:
    """Give the reason: a missing GPU, or the first differences with both values."""
    if bool(a.gpus) != bool(b.gpus):
        with_gpu, without = (a, b) if a.gpus else (b, a)
        return f"{without.name} has no GPU, {with_gpu.name} has {with_gpu.summary}"
    causes = [d for d in differences if d.severity == LOST]
    more = f", and {len(causes) - MOST_CAUSES} more" if len(causes) > MOST_CAUSES else ""
    return "; ".join(f"{d.what} {d.a} → {d.b}" for d in causes[:MOST_CAUSES]) + more


def _do(parts: Sequence[str]) -> str:
    return "does" if len(parts) == 1 else "do"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
