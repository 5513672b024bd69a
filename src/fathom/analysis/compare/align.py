"""Align the entries of two sides, even if names, launch shapes or lines of the program changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence

from fathom.analysis.compare.sides import SideEntry, combined
from fathom.analysis.entries import COLLECTIVES, WORK, Entry, cause_of

Pair = tuple[SideEntry | None, SideEntry | None, str]
Key = Callable[[SideEntry], Hashable | None]
_SHAPE = re.compile(r" \S*x\S*·\S+$")
_LINE = re.compile(r":\d+(?=\)|$)")
_DTYPE = re.compile(
    r"_?\b(?:c10::)?(?:B?[Ff]loat(?:16|8_e\w+)?|bfloat16|double|[Hh]alf)\b|(?:bf16|f16|f32|tf32|s1688|s16816|h)+(?=_|gemm)"
)
KERNELS = frozenset((*WORK, *COLLECTIVES))


def align(baseline: Sequence[SideEntry], candidate: Sequence[SideEntry]) -> Iterator[Pair]:
    """Yield pairs of entries that do the same work, and how they were aligned.

    Every entry is in exactly one pair, alone if nothing on the other side matches it. Keys go from exact to
    coarse; entries with equal keys are summed.
    """
    left, right = list(baseline), list(candidate)
    for how, key in STAGES:
        mine, theirs = _grouped(left, key), _grouped(right, key)
        for value in [value for value in mine if value in theirs]:
            yield combined(mine[value]), combined(theirs[value]), how
        left = [entry for entry in left if (value := key(entry)) is None or value not in theirs]
        right = [entry for entry in right if (value := key(entry)) is None or value not in mine]
    yield from ((entry, None, "baseline only") for entry in left)
    yield from ((None, entry, "candidate only") for entry in right)


def _grouped(entries: Sequence[SideEntry], key: Key) -> dict[Hashable, list[SideEntry]]:
    groups: dict[Hashable, list[SideEntry]] = {}
    for entry in entries:
        if (value := key(entry)) is not None:
            groups.setdefault(value, []).append(entry)
    return groups


def short(detail: str) -> str:
    """Return the name of a kernel family without its launch shape."""
    return _SHAPE.sub("", detail)


def _same(entry: SideEntry) -> Hashable:
    return entry.keys[0]


def _line(entry: SideEntry) -> Hashable | None:
    """Return the function and file of host time, whose line changes with every edit above it."""
    detail = entry.details[0]
    if not cause_of(entry.entry) or not _LINE.search(detail):
        return None
    return entry.entry, _LINE.sub("", detail)


def _direction(entry: SideEntry) -> Hashable | None:
    """Return the direction of a copy, pinned or not."""
    return entry.details[0].partition(" ")[0] if entry.entry == Entry.COPY else None


def _work(*parts: str) -> Key:
    """Return a key of these parts of work: its name, its op, its module, its launches per step."""

    def key(entry: SideEntry) -> Hashable | None:
        if entry.entry not in KERNELS or ("op" in parts and not entry.launched.op):
            return None
        known = {
            "name": short(entry.details[0]),
            "type": _DTYPE.sub("", short(entry.details[0])),
            "op": entry.launched.op,
            "module": entry.launched.module,
            "count": None if entry.count is None else round(entry.count, 2),
        }
        return (entry.entry, *(known[part] for part in parts))

    return key


STAGES: tuple[tuple[str, Key], ...] = (
    ("same", _same),
    ("line", _line),
    ("direction", _direction),
    ("launch shape", _work("name", "op", "module", "count")),
    ("launch shape", _work("name", "op", "module")),
    ("launch shape", _work("name")),
    ("dtype", _work("type", "op", "module")),
    ("op and module", _work("op", "module")),
    ("op", _work("op")),
)
