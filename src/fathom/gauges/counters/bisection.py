"""Find by bisection which counters can be streamed, and which of them in the same pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

UNKNOWN = "this chip lacks it"
PASSES = "it takes {} passes even alone"
ABSENT = "its samples are never complete: the unit that counts it is missing here"
NO_ROOM = "it does not fit into one pass with {}, which every group requires"
INCOMPLETE = "its samples are incomplete together with {}, which every group requires"


class CounterChip(Protocol):
    """The queries to a chip. Counters that share a pass also do so in every subset."""

    def passes(self, names: Sequence[str]) -> int:
        """Return the number of passes that count these; 0 if the chip lacks one of them."""

    def completes(self, names: Sequence[str]) -> bool:
        """Return whether the samples of these single-pass counters are complete."""


@dataclass
class Qualified:
    """Counters that stream, in single-pass groups that begin with the anchor, and reasons for the others."""

    groups: list[list[str]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def qualify(names: Sequence[str], chip: CounterChip, anchors: Sequence[str] = ()) -> Qualified:
    """Sort `names` into groups; each group begins with the first of `anchors` that streams here."""
    result = Qualified()
    single = [name for name in dict.fromkeys(names) if _counts(name, chip, result)]
    result.refused |= dict.fromkeys(_absent(single, chip), ABSENT)
    good = [name for name in single if name not in result.refused]
    anchor = [name for name in anchors if name in good][:1]
    rest = [name for name in good if name not in anchor]
    while rest:
        group, left = fill(anchor, rest, chip)
        if left == rest:
            result.refused |= dict.fromkeys(left, NO_ROOM.format(*anchor))
            break
        result.groups += _complete(anchor, group[len(anchor) :], chip, result)
        rest = left
    if not result.groups and anchor:
        result.groups.append(anchor)
    return result


def _counts(name: str, chip: CounterChip, result: Qualified) -> bool:
    passes = chip.passes([name])
    if passes != 1:
        result.refused[name] = PASSES.format(passes) if passes else UNKNOWN
    return passes == 1


def fill(group: Sequence[str], names: Sequence[str], chip: CounterChip) -> tuple[list[str], list[str]]:
    """Extend `group` greedily by those of `names` that fit into its pass; return it and the others."""
    if not names:
        return list(group), []
    if chip.passes([*group, *names]) == 1:
        return [*group, *names], []
    if len(names) == 1:
        return list(group), list(names)
    half = len(names) // 2
    fuller, left = fill(group, names[:half], chip)
    fullest, right = fill(fuller, names[half:], chip)
    return fullest, left + right


def _absent(names: Sequence[str], chip: CounterChip) -> Iterator[str]:
    """Yield the counters whose samples are never complete and spoil every group that they are in."""
    rest = list(names)
    while rest:
        group, rest = fill((), rest, chip)
        yield from _incomplete(group, chip)


def _incomplete(names: list[str], chip: CounterChip) -> Iterator[str]:
    if chip.completes(names):
        return
    if len(names) == 1:
        yield from names
        return
    half = len(names) // 2
    yield from _incomplete(names[:half], chip)
    yield from _incomplete(names[half:], chip)


def _complete(anchor: list[str], names: list[str], chip: CounterChip, result: Qualified) -> list[list[str]]:
    """Return the group if its samples are complete, else as many parts as needed."""
    if chip.completes([*anchor, *names]):
        return [[*anchor, *names]]
    if len(names) == 1:
        result.refused[names[0]] = INCOMPLETE.format(*anchor) if anchor else ABSENT
        return []
    half = len(names) // 2
    parts = (names[:half], names[half:])
    return [group for part in parts for group in _complete(anchor, part, chip, result)]
