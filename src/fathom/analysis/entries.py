"""Entries of a ledger: their names and meanings, and the precedence of causes of idle time."""

from __future__ import annotations

from enum import Enum

IDLE = "idle: "
DISTORTED = "profiled steps took several times as long"  # a detail of unattributed time


class Entry(str, Enum):
    """An entry of the ledger: where the time of a step goes.

    A member equals its value, the string in tables, JSON and rules. `meaning` explains the entry in at most
    25 characters, to fit beside it in 80 columns; it is "" if the name is clear. The entry of a wait whose
    recorded cause is not listed here is the string `idle_entry(cause)`.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Entry:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    COMPUTE = "compute"
    OPS = "ops"  # the work of programs without devices
    COMMUNICATION = "communication"  # a collective whose peers are unknown
    MOVING_BYTES = "moving bytes"  # a collective since its last peer arrived
    WAITING_FOR_PEERS = "waiting for peers", "other ranks were late"  # a collective before then
    COPY = "copy"
    CHECKPOINT = "idle: checkpoint", "state was saved"
    COMPILATION = "idle: compilation", "code was compiled"
    INPUT = "idle: input", "no batch was ready"
    GC = "idle: gc", "garbage was collected"
    FIRST_USE = "idle: first use", "loaded for the first time"
    SYNCHRONISATION = "idle: synchronisation", "the host was blocked"
    ALLOCATOR = "idle: allocator", "memory allocation"
    DISPATCHING = "idle: dispatching", "preparing launches"
    PYTHON = "idle: python", "Python ran between ops"
    BLOCKED = "idle: blocked", "a system call blocked"
    HOST_WAITS_FOR_PEERS = "idle: waiting for peers", "other ranks were late"
    WORKERS = "idle: waiting for workers", "they run the model"  # of a serving engine
    OWN_HOOKS = "idle: profiling overhead", "Fathom's own hooks ran"
    LAUNCH_LATENCY = "idle: launch latency", "launched, not yet running"
    UNRECORDED = "idle: unrecorded device work", "a copy waited for it"
    DEVICE_GAP = "idle: device gap", "idle despite queued work"
    NO_WORK = "idle: no work", "nothing was requested"
    UNEXPLAINED = "idle: unexplained", "no record explains it"
    UNATTRIBUTED = "unattributed", "not in the profiled steps"  # time of clean steps beyond all recorded time
    OVERHEAD = "profiling overhead"  # device work of profiled steps beyond the clean step's time

    __str__ = str.__str__

    @property
    def cause(self) -> str:
        """The cause of idle time, as in the table `waits`; "" for other entries."""
        return cause_of(self)


def idle_entry(cause: str) -> str:
    """Return the entry of idle time with this cause."""
    return IDLE + cause


def cause_of(entry: str) -> str:
    """Return the cause of an entry of idle time; "" for other entries."""
    return entry.removeprefix(IDLE) if entry.startswith(IDLE) else ""


def causes_of(*entries: Entry) -> tuple[str, ...]:
    """Return the causes of entries of idle time."""
    return tuple(entry.cause for entry in entries)


def meaning_of(entry: str) -> str:
    """Return the explanation of an entry; "" if it has none."""
    return Entry(entry).meaning if entry in _VALUES else ""


_VALUES = frozenset(Entry)

# If records of one thread overlap, the first cause wins: the intent of the program (save, compile, load)
# explains more than the calls it makes for that, and a collection explains the calls of its destructors.
PRECEDENCE = causes_of(
    Entry.CHECKPOINT,
    Entry.COMPILATION,
    Entry.INPUT,
    Entry.GC,
    Entry.FIRST_USE,
    Entry.SYNCHRONISATION,
    Entry.ALLOCATOR,
    Entry.DISPATCHING,
)
# Ledger names of causes that may be recorded under other names; all other names stay unchanged.
ALIASES = {
    "sync": Entry.SYNCHRONISATION.cause,
    "synchronization": Entry.SYNCHRONISATION.cause,
    "compile": Entry.COMPILATION.cause,
    "loader": Entry.INPUT.cause,
    "save": Entry.CHECKPOINT.cause,
}
WORK = (Entry.COMPUTE, Entry.OPS)
DEVICE_WORK = (Entry.COMPUTE, Entry.COMMUNICATION, Entry.MOVING_BYTES, Entry.COPY)
COLLECTIVES = (Entry.COMMUNICATION, Entry.WAITING_FOR_PEERS, Entry.MOVING_BYTES)
