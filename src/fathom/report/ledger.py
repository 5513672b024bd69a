"""The ledger's entries in groups, largest first, with small entries folded together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from rich.text import Text

from fathom.analysis.entries import Entry, cause_of
from fathom.analysis.results import Device, LedgerRow
from fathom.report import units
from fathom.units import MS_PER_S

PROCESSOR = "cpu"
SMALL = 0.002  # of the step: smaller entries are folded


@dataclass(frozen=True)
class GroupStyle:
    """Name and look of a group. Glyphs differ, for terminals without colour."""

    name: str
    glyph: str
    colour: str
    members: str  # plural for its folded entries
    title: str = ""  # shown in place of the name


KINDS = (
    GroupStyle(Entry.COMPUTE, "█", "green", "families"),
    GroupStyle(Entry.OPS, "█", "green", "ops"),  # on a CPU
    GroupStyle(Entry.COMMUNICATION, "▓", "magenta", "collectives"),
    GroupStyle(Entry.COPY, "▒", "yellow", "kinds"),
    GroupStyle("idle", "░", "red", "causes"),
    GroupStyle(Entry.UNATTRIBUTED, "·", "blue", "differences"),
)
# On a CPU, time outside ops is not idle, because it runs Python.
_OUTSIDE = GroupStyle("idle", "░", "red", "causes", "outside ops")
_HOST = GroupStyle("idle", "░", "red", "causes", "host time")
_UNIT_DIMENSIONS = re.compile(r"(?:x1)+(?=·|$)")
_WRAPPED = re.compile(r"(?P<wrapper>\w+?)(?:_kernel)?<(?P<inner>\w*_\w*|\w+<.+>|\w*(?:Functor|Op|Ops)\w*)>")
_COMMUNICATION = {Entry.WAITING_FOR_PEERS, Entry.MOVING_BYTES}


@dataclass(frozen=True)
class LedgerGroup:
    """The entries of one kind on one device, largest first."""

    kind: GroupStyle
    entries: list[LedgerRow]

    @property
    def ms(self) -> float:
        return sum(entry.ms for entry in self.entries)


def step_ms(device: Device) -> float:
    """Return the sum of the device's ledger in ms: the clean step, or else the profiled step."""
    return (device.total_ms or 0.0) + (device.observer_ms or 0.0)


def of_profiled(device: Device) -> Iterator[Text]:
    """Yield that a table is about profiled steps, if the ledger is that of the clean step."""
    if device.observer_ms is not None and device.total_ms:
        length = units.duration(device.total_ms)
        yield Text(f"  times and shares of the mean over all profiled steps, {length}", "dim")


def groups(device: Device, by_launch: bool = True) -> list[LedgerGroup]:
    """Return the device's entries grouped by kind, without kinds that took no time.

    Kernel families are names with launch shapes; unless `by_launch`, families with the same name share a row.
    """
    rows = device.ledger if by_launch else by_name(device.ledger)
    result: list[LedgerGroup] = []
    for kind in KINDS:
        entries = [e for e in rows if _kind_of(e) == kind.name and e.ms > 0]
        if entries:
            if kind.name == "idle":
                works = bool(result) and result[0].kind.name == Entry.OPS
                kind = _OUTSIDE if works else _HOST if device.device == PROCESSOR else kind
            result.append(LedgerGroup(kind, sorted(entries, key=lambda entry: -entry.ms)))
    return result


def _kind_of(entry: LedgerRow) -> str:
    if cause_of(entry.entry):
        return "idle"
    return Entry.COMMUNICATION if entry.entry in _COMMUNICATION else entry.entry


def by_name(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Return the rows with the families of each kernel name in one row; a name with one shape keeps it."""
    alike: dict[tuple[str, str], list[LedgerRow]] = {}
    for row in rows:
        alike.setdefault((row.entry, _shaped(row.detail)[0]), []).append(row)
    return [_summed_row(name, same) if len(same) > 1 else same[0] for (_, name), same in alike.items()]


def _shaped(detail: str) -> tuple[str, str]:
    """Return a family's name and its launch shape, "" for rows without one."""
    family, space, shape = detail.rpartition(" ")
    return (family, shape) if space and "·" in shape else (detail, "")


def _summed_row(name: str, rows: list[LedgerRow]) -> LedgerRow:
    """Return the sum of rows; figures that one of them lacks are null."""
    sums = {field: _sum([getattr(row, field) for row in rows]) for field in _SUMMED}
    ran = sum(map(ran_ms, rows)) / MS_PER_S
    most = max(rows, key=lambda row: row.ms)
    return msgspec.structs.replace(
        most,
        detail=name,
        **sums,
        own_ms=ran * MS_PER_S,
        flops_per_s=sums["flops"] / ran if sums["flops"] is not None and ran else None,
        bytes_per_s=sums["bytes"] / ran if sums["bytes"] is not None and ran else None,
        inferred=any(row.inferred for row in rows),
        problem=next((row.problem for row in rows if row.problem), ""),
    )


_SUMMED = ("ms", "ns", "count", "flops", "bytes", "at_ceiling_ms", "clean_ms")


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def ran_ms(entry: LedgerRow) -> float:
    """Return an entry's work per step in ms, overlapped parts included; the base of rates."""
    return entry.ms if entry.own_ms is None else entry.own_ms


def fold(group: LedgerGroup, total_ms: float, top: int | None) -> tuple[list[LedgerRow], list[LedgerRow]]:
    """Return the entries that get a line, at most `top` (None: all), and the rest, never a single one."""
    if top is None:
        return group.entries, []
    small = sum(entry.ms < SMALL * total_ms for entry in group.entries)
    shown = min(top, len(group.entries) - small)
    if len(group.entries) - shown == 1:
        shown += 1
    return group.entries[:shown], group.entries[shown:]


def name(entry: LedgerRow) -> str:
    """Return an entry's name inside its group, as "name shape", without dimensions of 1."""
    rest = entry.entry if entry.entry in _COMMUNICATION else cause_of(entry.entry)
    family, shape = _shaped(entry.detail)
    short = _innermost(family) if shape or entry.entry == Entry.COMPUTE else family
    detail = f"{short} {_UNIT_DIMENSIONS.sub('', shape)}".strip()
    return ": ".join(part for part in (rest, detail) if part) or entry.entry


def _innermost(family: str) -> str:
    """Return the name with its template argument first, which says more: `Functor<float> (wrapper)`."""
    match = _WRAPPED.fullmatch(family)
    return f"{match['inner']} ({match['wrapper']})" if match else family


def by_entry(entries: Iterable[LedgerRow]) -> dict[str, float]:
    """Return milliseconds by entry name, summed over details."""
    sums: dict[str, float] = {}
    for entry in entries:
        sums[entry.entry] = sums.get(entry.entry, 0.0) + entry.ms
    return sums
