"""The causes of a change: differences between the sides that can explain an entry, and those of all steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fathom.analysis.compare.align import KERNELS, short
from fathom.analysis.compare.results import Cause, CauseKind, Change
from fathom.analysis.compare.run import Run
from fathom.analysis.compare.sides import SideEntry, ops_of
from fathom.analysis.entries import DEVICE_WORK
from fathom.machine.compare import compare as compare_machines
from fathom.sounding import COMPILER, LOADERS
from fathom.timing import mad, median
from fathom.units import NS_PER_MS

COUNTED = 0.005  # relative difference of launches per step that counts
CLOCK = 0.01  # relative difference of clocks that counts
FEW = 5  # samples of the clock
MISSING = "not set"
NO_WORDS = "no other words"
ITSELF = "fathom"  # its version does not affect the program
_LOADER = ("workers", "batch_size", "threads", "context", "items")
_OF_WORKERS = ("threads", "context")  # say nothing of a loader without processes
Clocks = tuple[float, float]


def of_entry(a: SideEntry | None, b: SideEntry | None, change_ns: int, clocks: Clocks | None) -> list[Cause]:
    """Return the differences in an entry's work, and the ms of change that each can explain.

    If launches changed and nothing else, they explain all of it; else as many times the baseline's time per
    launch. The first difference in dtype, shapes or kernels explains the rest. Without one, the clock may.
    """
    counts = (a.count or 0.0 if a else 0.0, b.count or 0.0 if b else 0.0)
    change, side = change_ns / NS_PER_MS, b or a
    if side is None or ((a is None or b is None) and side.entry not in KERNELS):
        return []
    fewer_or_more = abs(counts[1] - counts[0]) > COUNTED * counts[0]
    other = list(_inputs(a, b)) if a and b else []
    if not fewer_or_more:
        other = other or (list(_clock(a, b, clocks)) if a and b else [])
        return [*(replace(cause, change_ms=change) for cause in other[:1]), *other[1:]]
    mine = (counts[1] - counts[0]) * a.ns / counts[0] / NS_PER_MS if other and a and counts[0] else change
    first = [replace(cause, change_ms=change - mine) for cause in other[:1]]
    name = ops_of(a, b) or short(side.details[0])
    return [_launches(name, *counts, mine), *first, *other[1:]]


def _launches(name: str, before: float, after: float, ms: float) -> Cause:
    what = f"launches of {name}"
    kind: CauseKind = "more launches" if after > before else "fewer launches"
    return Cause(kind, what, _number(before), _number(after), ms, (before, after))


def _inputs(a: SideEntry, b: SideEntry) -> Iterator[Cause]:
    """Yield differences in the inputs of the op, or else in its kernels."""
    if a.entry not in KERNELS:
        return
    before, after = a.launched, b.launched
    op = ops_of(a, b)
    if before.dtypes and after.dtypes and before.dtypes != after.dtypes:
        yield Cause("dtype", f"dtype of {op}", before.dtypes, after.dtypes)
    if before.op == after.op and before.shapes and after.shapes and before.shapes != after.shapes:
        yield Cause("shape", f"shapes of {op}", before.shapes, after.shapes)
    old, new = (", ".join(dict.fromkeys(map(short, side.details))) for side in (a, b))
    if old != new and before.dtypes == after.dtypes:
        yield Cause("kernel choice", f"kernels of {op}" if op else "kernels", old, new)


def _clock(a: SideEntry, b: SideEntry, clocks: Clocks | None) -> Iterator[Cause]:
    """Yield the clocks if they changed in the direction that the entry's time per launch did."""
    if clocks is None or a.entry not in DEVICE_WORK or not (a.ns and b.ns):
        return
    before, after = a.ns / (a.count or 1.0), b.ns / (b.count or 1.0)
    if (after > before) == (clocks[1] < clocks[0]):
        yield Cause("clocks", "clock of the GPU", f"{clocks[0]:.0f} MHz", f"{clocks[1]:.0f} MHz")


def clocks_of(baseline: Sequence[Run], candidate: Sequence[Run]) -> Clocks | None:
    """Return the sides' median clocks in MHz if all recordings have samples and they differ, else None."""
    if any(len(run.clocks_mhz) < FEW for run in (*baseline, *candidate)):
        return None
    sides = [[mhz for run in runs for mhz in run.clocks_mhz] for runs in (baseline, candidate)]
    before, after = map(median, sides)
    scatter = max(mad(side) / len(side) ** 0.5 for side in sides)
    differ = abs(after - before) > max(CLOCK * before, 2 * scatter)
    return (before, after) if differ else None


def summed(entries: Sequence[Change]) -> list[Cause]:
    """Return the causes of the entries that moved, those of equal words summed, the largest first."""
    totals: dict[tuple[str, ...], Cause] = {}
    for cause in (cause for change in entries if change.moved for cause in change.causes):
        key = (
            ("", cause.what) if cause.launches else (cause.kind, cause.what, cause.baseline, cause.candidate)
        )
        totals[key] = _sum(totals[key], cause) if key in totals else cause
    return sorted(map(_moved_launches, totals.values()), key=lambda cause: -abs(cause.change_ms or 0.0))


def _moved_launches(cause: Cause) -> Cause:
    """Return launches that only moved to other kernels as a choice of kernels."""
    if cause.launches is None or abs(cause.launches[1] - cause.launches[0]) > COUNTED * cause.launches[0]:
        return cause
    what, after = cause.what.replace("launches", "kernels", 1), f"{cause.candidate} others"
    return replace(cause, kind="kernel choice", what=what, candidate=after)


def _sum(a: Cause, b: Cause) -> Cause:
    known = [cause.change_ms for cause in (a, b) if cause.change_ms is not None]
    ms = sum(known) if known else None
    if not a.launches or not b.launches:
        return replace(a, change_ms=ms)
    before, after = (x + y for x, y in zip(a.launches, b.launches, strict=True))
    kind: CauseKind = "more launches" if after >= before else "fewer launches"
    return Cause(kind, a.what, _number(before), _number(after), ms, (before, after))


def of_all(baseline: Run, candidate: Run) -> Iterator[Cause]:
    """Yield the differences between two recordings that concern the whole program."""
    yield from _command(baseline.command, candidate.command)
    for name, before, after in _differing(baseline.versions, candidate.versions):
        if name != ITSELF and MISSING not in (before, after):  # older recordings have fewer versions
            yield Cause("library version", name, before, after)
    for name, before, after in _differing(baseline.environment, candidate.environment):
        yield Cause("environment", name, before, after)
    yield from _machines(baseline, candidate)
    yield from _loaders(baseline.facts, candidate.facts)
    yield from _compilers(baseline.facts, candidate.facts)


def _command(before: Sequence[str], after: Sequence[str]) -> Iterator[Cause]:
    """Yield the words of the commands that differ."""
    only = [_only(before, after), _only(after, before)]
    if any(only):
        yield Cause("command", "command", only[0] or NO_WORDS, only[1] or NO_WORDS)


def _only(words: Sequence[str], other: Sequence[str]) -> str:
    """Return the words that the other command lacks, each value with its option: `--attention sdpa`."""
    chosen = []
    for place, word in enumerate(words):
        if word not in other:
            option = words[place - 1] if place and words[place - 1].startswith("-") else ""
            chosen += [option] if option and not word.startswith("-") and option in other else []
            chosen.append(word)
    return " ".join(chosen)


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield names with different values; those of one side only count if the other has any."""
    for name in sorted({*a, *b}) if a and b else ():
        before, after = a.get(name, MISSING), b.get(name, MISSING)
        if before != after:
            yield name, before, after


def _machines(a: Run, b: Run) -> Iterator[Cause]:
    if not all(run.machine.get("fingerprint") for run in (a, b)):  # imported traces know little of theirs
        return
    for difference in compare_machines(a.machine, b.machine).differences:
        if difference.severity != "carries over" and difference.id not in {*a.versions, *b.versions}:
            yield Cause("machine", difference.what, difference.a, difference.b)


def _loaders(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield differences between the first loaders of both sides."""
    old, new = (next(iter(facts.get(LOADERS) or []), None) for facts in (a, b))
    if not old or not new:
        return
    processes = bool(old.get("workers") or new.get("workers"))
    for name in (name for name in _LOADER if processes or name not in _OF_WORKERS):
        before, after = _text(old, name), _text(new, name)
        if before != after:
            yield Cause("loader", f"{name.replace('_', ' ')} of the data loader", before, after)


def _compilers(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Cause]:
    old, new = (_text(facts.get(COMPILER), "graphs") for facts in (a, b))
    if old != new:
        yield Cause("compiler", "graphs that torch.compile made", old, new)


def _text(facts: Mapping[str, Any] | None, name: str) -> str:
    value = (facts or {}).get(name)
    return MISSING if value is None else str(value)


def _number(count: float) -> str:
    return f"{count:.0f}" if count == round(count) else f"{count:.1f}"
