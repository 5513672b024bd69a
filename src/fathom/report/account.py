"""The account as a table: where the step time goes, from matrix work at its ceiling to idle time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow, Part
from fathom.report import units
from fathom.report.ledger import name
from fathom.report.screen import LEAST

MOST = 10  # parts with a line each
SMALL = 0.02  # of the step: smaller parts share a line
SLOW = ("smaller ceiling gap", "smaller ceiling gaps")  # one, several
REST = ("smaller item", "smaller items")
OWNER = 30  # columns
BAR, ROOMY = 10, 72  # narrower tables have no bars
_COLOURS = {"peak": "green", "ceiling": "green", "unexplained": "red", "no ceiling": "red"}
_LEAD, _FINDING, _CAUSE = "lead ", "finding ", "cause "
_LIMITED = ": limited by "
_KERNELS = (_LEAD, "kernels ")


def section(parts: Sequence[Part], width: int, every: bool = False, noun: str = "step") -> Iterator[Text]:
    """Yield a line for each of the largest parts in order (or for `every` part), and sums of the others."""
    if not parts:
        return
    total = sum(part.ms for part in parts)
    digits = units.decimals(total)
    ms = max(len(f"{total:.{digits}f}"), 6) + 2
    bar = BAR if width >= ROOMY else 0
    room = max(width - ms - 9 - bar - OWNER, LEAST)
    yield Text(f"{f'account of the {noun}':<{room}}{'ms':>{ms}}{'%':>7}  {'':<{bar}}  owner", "dim underline")
    largest = shown(parts, total, every)
    for part in largest:
        share = units.signed_share(part.ms, total)
        line = Text(f"{label(part, room - 1):<{room}}{part.ms:>{ms}.{digits}f}{share:>7}  ")
        line.append(units.bar(part.ms / total, bar), _COLOURS.get(part.owner, "yellow"))
        owner = units.shorten(_owner(part), OWNER - 2)
        yield line.append(f"  {owner}", "bold" if part.owner.startswith(_FINDING) else "dim")
    for words, left in folded([part for part in parts if part not in largest]):
        yield Text(f"{words:<{room}}{left:>{ms}.{digits}f}{units.signed_share(left, total):>7}", "dim")
    yield Text(f"{noun:<{room}}{total:>{ms}.{digits}f}{100:>7.1f}", "bold")


def shown(parts: Sequence[Part], total: float, every: bool) -> list[Part]:
    """Return the largest parts in the account's order. A single small part is included."""
    if every:
        return list(parts)
    largest = sorted(parts, key=lambda part: -abs(part.ms))[:MOST]
    least = min((abs(part.ms) for part in largest if abs(part.ms) >= SMALL * total), default=0.0)
    chosen = [part for part in parts if abs(part.ms) >= max(least, SMALL * total)][:MOST]
    return chosen if len(parts) - len(chosen) > 1 else list(parts)


def folded(rest: Sequence[Part]) -> Iterator[tuple[str, float]]:
    """Yield (label, ms) for kernels below their ceilings, and for all other small parts."""
    slow = [part.ms for part in rest if part.owner.startswith(_KERNELS)]
    others = [part.ms for part in rest if not part.owner.startswith(_KERNELS)]
    for words, some in ((SLOW, slow), (REST, others)):
        if some:
            yield f"{len(some)} {words[len(some) > 1]}", sum(some)


def label(part: Part, room: int) -> str:
    """Return the part's name; families are named as in the ledger."""
    if not part.owner.startswith(_LEAD):
        return units.shorten(part.part, room)
    family = part.owner.removeprefix(_LEAD)
    words = part.part.removeprefix(family).partition(_LIMITED)[0]
    words = words if room > 2 * LEAST else ""
    return units.shorten(name(LedgerRow(Entry.COMPUTE, family, part.ms)), room - len(words)) + words


def _owner(part: Part) -> str:
    """Return the owner's name: for a family, only its limit, because its name is in the line already."""
    if part.owner.startswith(_LEAD):
        return part.part.rpartition(_LIMITED)[2] if _LIMITED in part.part else "ceiling gap"
    return part.owner.removeprefix(_FINDING).removeprefix(_CAUSE)
