"""The ledger's entries as a reader wants them: in groups, largest first, the small ones folded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fathom.analysis.results import Device, Entry

PROCESSOR = "cpu"
SMALL = 0.002  # of the step: below it an entry is folded away


@dataclass(frozen=True)
class Kind:
    """How a group is called and drawn. The glyph tells groups apart where there is no colour."""

    name: str
    glyph: str
    colour: str
    members: str  # what its entries are called when they are folded
    title: str = ""  # what a reader sees; its name where it has none


KINDS = (
    Kind("compute", "█", "green", "families"),
    Kind("ops", "█", "green", "ops"),  # a processor's work
    Kind("communication", "▓", "magenta", "collectives"),
    Kind("copy", "▒", "yellow", "directions"),
    Kind("idle", "░", "red", "causes"),
    Kind("unattributed", "·", "blue", "differences"),
)
# A processor that runs Python is not idle.
_OUTSIDE = Kind("idle", "░", "red", "causes", "outside ops")
_HOST = Kind("idle", "░", "red", "causes", "host time")
_ONES = re.compile(r"(?:x1)+(?=·|$)")
_WRAPPED = re.compile(r"(?P<wrapper>\w+?)(?:_kernel)?<(?P<inner>\w*_\w*|\w+<.+>|\w*(?:Functor|Op|Ops)\w*)>")
_COMMUNICATION = {"waiting for peers", "moving bytes"}


@dataclass(frozen=True)
class Group:
    """All entries of one kind on one device, largest first."""

    kind: Kind
    entries: list[Entry]

    @property
    def ms(self) -> float:
        return sum(entry.ms for entry in self.entries)


def step_ms(device: Device) -> float:
    """What the device's ledger sums to: the clean step, or the profiled one where there is no clean step."""
    return (device.total_ms or 0.0) + (device.observer_ms or 0.0)


def groups(device: Device) -> list[Group]:
    """The device's entries by kind; kinds that took no time are left out."""
    found: list[Group] = []
    for kind in KINDS:
        entries = [e for e in device.ledger if _kind_of(e) == kind.name and e.ms > 0]
        if entries:
            if kind.name == "idle":
                works = bool(found) and found[0].kind.name == "ops"
                kind = _OUTSIDE if works else _HOST if device.device == PROCESSOR else kind
            found.append(Group(kind, sorted(entries, key=lambda entry: -entry.ms)))
    return found


def _kind_of(entry: Entry) -> str:
    if entry.entry.startswith("idle"):
        return "idle"
    return "communication" if entry.entry in _COMMUNICATION else entry.entry.partition(":")[0]


def ran_ms(entry: Entry) -> float:
    """How long its pieces run a step, hidden parts too: what rates and shares of a ceiling are over."""
    return entry.ms if entry.own_ms is None else entry.own_ms


def fold(group: Group, total_ms: float, top: int | None) -> tuple[list[Entry], list[Entry]]:
    """The entries worth a line, at most `top`, and the rest; None folds none, and one alone stays."""
    if top is None:
        return group.entries, []
    small = sum(entry.ms < SMALL * total_ms for entry in group.entries)
    shown = min(top, len(group.entries) - small)
    if len(group.entries) - shown == 1:
        shown += 1
    return group.entries[:shown], group.entries[shown:]


def name(entry: Entry) -> str:
    """What an entry is called inside its group, as "name shape"; shapes without the dimensions that are 1."""
    rest = entry.entry.partition(":")[2].strip()
    if entry.entry in _COMMUNICATION:
        rest = entry.entry
    family, space, shape = entry.detail.rpartition(" ")
    detail = f"{_telling(family)} {_ONES.sub('', shape)}" if space and "·" in shape else entry.detail
    return ": ".join(part for part in (rest, detail) if part) or entry.entry


def _telling(family: str) -> str:
    """A wrapper's name says less than what it wraps: `wrapper_kernel<Functor<float>>` reads from inside."""
    found = _WRAPPED.fullmatch(family)
    return f"{found['inner']} ({found['wrapper']})" if found else family
