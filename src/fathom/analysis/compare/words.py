"""The sentences of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fathom.analysis.compare.align import short
from fathom.analysis.compare.causes import summed
from fathom.analysis.compare.results import ENOUGH, STEP_TIME, Cause, Change, SoundingComparison
from fathom.analysis.entries import Entry
from fathom.analysis.results import step_noun
from fathom.analysis.work.classes import class_of
from fathom.units import NS_PER_MS

NAMED = 2  # ops or kernels of one kind in a sentence; others are counted
MOST, LITTLE = 0.5, 0.1  # of the step's change
LONG = 36  # letters of a kernel's name in a sentence
ATTENTION = "attention"

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


def too_few(steps: int, remedy: str) -> str:
    """Return why small changes remain undecided, and the remedy."""
    return f"too few steps: a recording has {steps}, and {ENOUGH} are needed; {remedy}"


def headline(result: SoundingComparison) -> str:
    """Return the verdict in one sentence, and the entry that explains most of it in another."""
    before, after = (f"{ns / NS_PER_MS:.4g}" for ns in (result.baseline_ns, result.candidate_ns))
    few = result.verdict == "inconclusive" and result.few_steps is not None
    verdict = _VERDICTS[result.verdict] + (", too few steps" if few else "")
    text = f"{verdict}: the {step_noun(result.kind)} took {before} ms, now {after} ms, "
    if result.interval is None:
        why = incomparable(result)
        return f"{text}{percent(result.ratio)}." + (f" Not comparable: {why}." if why else "")
    low, high = map(percent, result.interval)
    return f"{text}{percent(result.ratio)} ({low} to {high}). {leading(result)}".rstrip()


def incomparable(result: SoundingComparison) -> str:
    """Return why the noise leaves no interval of the step, without the advice; "" if it does not."""
    why = next((absence.why for absence in result.abstained if absence.what == STEP_TIME), "")
    return why.partition(";")[0]


def leading(result: SoundingComparison) -> str:
    """Return the work that moved most in the direction of the step, and its first cause; "" without any."""
    groups: dict[str, list[Change]] = {}
    for change in result.moved:
        groups.setdefault(_work_of(change), []).append(change)
    sign = 1 if result.change_ns > 0 else -1
    name, changes = max(groups.items(), key=lambda group: sign * _sum(group[1]), default=("", []))
    moved = _sum(changes)
    if sign * moved <= 0:
        return ""
    lead = "Moved most"
    if result.verdict in ("faster", "slower"):
        lead = _lead(moved / result.change_ns, _sum(result.moved) / result.change_ns)
    text = f"{lead}: {name} {moved / NS_PER_MS:+.3g} ms{cause_of(*changes)}."
    return f"{text} {_only_fused(result.entries)}".rstrip()


def _lead(share: float, certain: float) -> str:
    """Return the words before the work that moved most: its share of the change, and that of all of it."""
    if share < LITTLE and certain < MOST:
        return "Most of it is within the noise of single entries. Beyond noise"
    return "Most of it" if share > MOST else "Largest part"


def _sum(changes: Iterable[Change]) -> int:
    return sum(change.change_ns for change in changes)


def _work_of(change: Change) -> str:
    """Return the work of an entry in words: attention forward and backward, its ops, or a kernel's name."""
    if change.entry != Entry.COMPUTE:
        return name_of(change)
    if _is_attention(change):
        return ATTENTION
    return _few(change.ops.split(", ")) if change.ops else _brief(change.detail)


def _only_fused(entries: Iterable[Change]) -> str:
    """Return which side alone runs fused attention, whose parts are entries of many ops on the other side."""
    fused = [change for change in entries if change.entry == Entry.COMPUTE and _is_attention(change)]
    sides = {change.aligned for change in fused}
    if sides not in ({"candidate only"}, {"baseline only"}):
        return ""
    ops = _few(change.op for change in fused)
    return f"Only the {sides.pop().removesuffix(' only')} runs fused attention ({ops})."


def _is_attention(change: Change) -> bool:
    return class_of(change.op).name == ATTENTION


def cause_of(*changes: Change) -> str:
    """Return the largest cause of changes of the same work in brackets, after a space; "" without one."""
    first = next((cause for cause in summed(changes) if cause.change_ms is not None), None)
    if first is None:
        return ""
    before, after = _sides(first, changes)
    return f" ({first.what}: {before} → {after})"


def _sides(cause: Cause, changes: Sequence[Change]) -> tuple[str, str]:
    """Return both sides of a cause; of a choice of kernels, the kernels that only one side has."""
    before = [_brief(name) for change in changes for name in change.baseline_details]
    after = [_brief(name) for change in changes for name in change.candidate_details]
    only = [name for name in before if name not in after], [name for name in after if name not in before]
    if cause.kind != "kernel choice" or not all(only):
        return cause.baseline, cause.candidate
    return _few(only[0]), _few(only[1])


def _brief(kernel: str) -> str:
    name = short(kernel)
    return name if len(name) <= LONG else f"{name[: LONG - 1]}…"


def _few(names: Iterable[str]) -> str:
    """Return the first distinct names, and how many others there are."""
    distinct = list(dict.fromkeys(names))
    more = [f"{len(distinct) - NAMED} more"] if len(distinct) > NAMED else []
    return ", ".join([*distinct[:NAMED], *more])
