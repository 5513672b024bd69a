"""The sentences of a comparison."""

from __future__ import annotations

from fathom.analysis.compare.results import ENOUGH, Change, SoundingComparison
from fathom.analysis.entries import Entry
from fathom.analysis.results import step_noun
from fathom.units import NS_PER_MS

_VERDICTS = {"faster": "Faster", "slower": "Slower", "same": "The same", "inconclusive": "Inconclusive"}


def percent(ratio: float) -> str:
    """Return a ratio as a signed percentage: +3.1 %."""
    change = 100 * (ratio - 1)
    return f"{change:+.0f} %" if abs(change) >= 100 else f"{change:+.1f} %"


def name_of(change: Change) -> str:
    """Return the name of an entry for people: a kernel with the op that launches it, host time by cause."""
    if change.entry == Entry.COMPUTE:
        return f"{change.ops or change.op} {change.detail}".strip()
    return f"{change.entry} {change.detail}".strip()


def cause_of(change: Change) -> str:
    """Return the first cause of an entry's change in brackets, after a space; "" without one."""
    cause = next((cause for cause in change.causes if cause.change_ms is not None), None)
    return f" ({cause.what}: {cause.baseline} → {cause.candidate})" if cause else ""


def too_few(steps: int, remedy: str) -> str:
    """Return why small changes are not decided, and what to do."""
    return f"too few steps: a recording has {steps}, and {ENOUGH} are needed; {remedy}"


def headline(result: SoundingComparison) -> str:
    """Return the verdict in one sentence, and the entry that explains most of it in another."""
    before, after = (f"{ns / NS_PER_MS:.4g}" for ns in (result.baseline_ns, result.candidate_ns))
    few = result.verdict == "inconclusive" and result.few_steps is not None
    verdict = _VERDICTS[result.verdict] + (", too few steps" if few else "")
    text = f"{verdict}: the {step_noun(result.kind)} took {before} ms, now {after} ms, "
    if result.interval is None:
        return f"{text}{percent(result.ratio)}."
    low, high = map(percent, result.interval)
    return f"{text}{percent(result.ratio)} ({low} to {high}). {leading(result)}".rstrip()


def leading(result: SoundingComparison) -> str:
    """Return the entry that moved most in the direction of the step, and its first cause; "" without one."""
    moved = [change for change in result.moved if (change.change_ns > 0) == (result.change_ns > 0)]
    if not moved:
        return ""
    first = moved[0]
    lead = "Moved most"
    if result.verdict in ("faster", "slower"):
        lead = "Most of it" if 2 * first.change_ns / result.change_ns > 1 else "Largest part"
    return f"{lead}: {name_of(first)} {first.change_ms:+.3g} ms{cause_of(first)}."
