"""Collects decoded events into arrays in blocks, so that the objects of a block are freed early.

Names and texts are stored once and referred to by number.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np

from fathom.sounding.events import is_pid
from fathom.sounding.events.arrays import NULL, Arrays, Index, Table, all_missing, ints, to_ns
from fathom.sounding.kineto import categories
from fathom.sounding.kineto.events import Args, Event

_NUMBER = re.compile(rb"\d+")
_LONGEST_DIMS = 200  # characters

_COMMON = ("name", "thread", "start", "duration")
_OPS = ("annotation", "shapes", "dtypes", "values", "provenance", "module", "source")
_ALLOCATOR = ("device", "size", "allocated", "reserved", "address", "thread")
_DEVICE = (
    "kind", "device", "stream", "correlation", "grid", "block", "registers", "shared_bytes", "local_bytes",
    "graph_node", "bytes",
)  # fmt: skip
MODULE = "nn.Module: "
_STANDARD = frozenset(sys.stdlib_module_names)
# Folders whose code runs the user's code but is not part of it.
_MACHINERY = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/")


class TraceColumns:
    """The parts of a trace that the tables need: ops and annotations, Python frames, calls, device work."""

    def __init__(self) -> None:
        self.ops, self.frames = Table(*_COMMON, *_OPS), Table(*_COMMON)
        self.calls = Table(*_COMMON, "correlation")
        self.device = Table("name", "start", "duration", *_DEVICE)
        self.allocator = Table("start", *_ALLOCATOR)
        self.pid: int | None = None  # process id of the program
        self.python_calls = 0  # of any function, also of libraries
        self.phases: Counter[str | None] = Counter()  # counts by phase (`ph`) of events without a duration
        self.unread: Counter[str | None] = Counter()  # counts of intervals by unknown category
        self.names = Index()
        self.texts = Index(_compact)
        self.dims = Index(_dims)
        self.provenance = Index()
        self.module = Index(lambda key: key or None)
        self.source = Index(user_frame)
        self._frames = _Frames()
        self._take: dict[str, Callable[[list[Event], str], None]] = {
            **dict.fromkeys(categories.OPS, self._add_ops),
            **dict.fromkeys(categories.ANNOTATIONS, partial(self._add_ops, annotation=True)),
            **dict.fromkeys(categories.FRAMES, self._add_frames),
            **dict.fromkeys(categories.CALLS, self._add_calls),
            **dict.fromkeys((*categories.KERNELS, *categories.COPIES, *categories.SETS), self._add_device),
            categories.ALLOCATOR: self._add_allocator,
            **dict.fromkeys(categories.IGNORED, _ignore),
        }

    def add(self, events: list[Event]) -> None:
        """Add one block. Raises InexactError if the events' times must be read as text."""
        for category, group in self._by_category(events).items():
            take = self._take.get(category or "")
            if take is None:
                self.unread[category] += len(group)
            else:
                take(group, category or "")

    def _by_category(self, events: list[Event]) -> dict[str | None, list[Event]]:
        # Most blocks are of one category, because Kineto writes one kind of event after another.
        if {event.ph for event in events} == {"X"} and len({event.cat for event in events}) == 1:
            return {events[0].cat: events}
        groups: defaultdict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
            elif event.name == categories.ALLOCATOR:
                groups[event.name].append(event)
            else:
                self.phases[event.ph] += 1
        return groups

    @property
    def nameless(self) -> int:
        """The index of the missing name; -1 if all events have a name."""
        return self.names.get(None, -1)

    def _common(self, events: list[Event]) -> Arrays:
        return {
            "name": self.names.of([event.name or None for event in events]),
            "thread": ints([event.tid for event in events]),
            "start": to_ns([event.ts for event in events]),
            "duration": to_ns([event.dur for event in events]),
        }

    def _add_ops(self, events: list[Event], _: str, annotation: bool = False) -> None:
        args = [event.args for event in events]
        texts = self.texts
        if self.pid is None and is_pid(events[0].pid):
            self.pid = events[0].pid
        self.ops.add(
            {
                **self._common(events),
                "annotation": np.full(len(events), annotation),
                "shapes": texts.of([bytes(a.shapes) for a in args]),
                "dtypes": texts.of([bytes(a.dtypes) for a in args]),
                "values": texts.of(_values(args)),
                "provenance": self.provenance.of(_provenances(args)),
                "module": self.module.of(_texts([a.module for a in args])),
                "source": self.source.of(_texts([a.stack for a in args])),
            }
        )

    def _add_frames(self, events: list[Event], _: str) -> None:
        wanted = self._frames
        self.python_calls += len(events)
        kept = [event for event in events if wanted[event.name]]
        if kept:
            self.frames.add(self._common(kept))

    def _add_calls(self, events: list[Event], _: str) -> None:
        correlation = ints([event.args.correlation for event in events])
        self.calls.add({**self._common(events), "correlation": correlation})

    def _add_device(self, events: list[Event], category: str) -> None:
        args = [event.args for event in events]
        kind = (category in categories.COPIES) + 2 * (category in categories.SETS)
        self.device.add(
            {
                **self._common(events),
                "kind": np.full(len(events), kind, np.int8),
                "device": _or(ints([a.device for a in args]), [event.pid for event in events]),
                "stream": _or(ints([a.stream for a in args]), [event.tid for event in events]),
                "correlation": ints([a.correlation for a in args]),
                "grid": self.dims.of([bytes(a.grid) for a in args]),
                "block": self.dims.of([bytes(a.block) for a in args]),
                "registers": ints([a.registers for a in args]),
                "shared_bytes": ints([a.shared for a in args]),
                "local_bytes": ints([a.local for a in args]),
                "graph_node": ints([a.node for a in args]),
                "bytes": ints([a.bytes for a in args]),
            }
        )

    def _add_allocator(self, events: list[Event], _: str) -> None:
        args = [event.args for event in events]
        self.allocator.add(
            {
                "start": to_ns([event.ts for event in events]),
                "device": ints([a.owner for a in args]),
                "size": ints([a.size for a in args]),
                "allocated": ints([a.allocated for a in args]),
                "reserved": ints([a.reserved for a in args]),
                "address": ints([a.address for a in args]),
                "thread": ints([event.tid for event in events]),
            }
        )


class _Frames(dict[str | None, bool]):
    """Caches by name whether a Python frame gives a module or a source line; most frames do not."""

    def __missing__(self, name: str | None) -> bool:
        self[name] = wanted = name is not None and (name.startswith(MODULE) or is_user_frame(name))
        return wanted


def _ignore(events: list[Event], category: str) -> None:
    pass


def _or(array: np.ndarray, others: list[Any]) -> np.ndarray:
    missing = array == NULL
    return np.where(missing, ints(others), array) if missing.any() else array


def _compact(raw: bytes) -> str | None:
    """Return a slice of JSON on one line, without indentation."""
    return msgspec.json.format(raw, indent=0).decode() if raw else None


def _dims(raw: bytes) -> str | None:
    """Return `[64, 1, 1]` as 64x1x1; None for text that is longer than any list of three."""
    return b"x".join(_NUMBER.findall(raw)).decode() or None if len(raw) <= _LONGEST_DIMS else None


def _texts(values: list[Any]) -> list[str | None]:
    if all_missing(values):
        return values
    return [value if isinstance(value, str) else None for value in values]


def _values(args: list[Args]) -> list[bytes]:
    """Return concrete inputs; for a collective its name, dtype, sizes, number of ranks, and group."""
    return [bytes(a.values) if a.collective is None else _collective(a) for a in args]


def _collective(args: Args) -> bytes:
    fields = [args.collective, args.element, args.sent, args.received, args.ranks]
    if args.group is not None:  # older versions of torch do not record it
        fields += [args.group, args.description or "", args.members or ""]
    return msgspec.json.encode([str(value) for value in fields])


def _provenances(args: list[Args]) -> list[str | None]:
    if all_missing([a.kernel_file or a.kernel_backend for a in args]):
        return [None] * len(args)
    return [_provenance(a) for a in args]


def _provenance(args: Args) -> str | None:
    """Return the file, backend and hash of a compiled kernel as JSON, or None."""
    if args.kernel_file is None and args.kernel_backend is None:
        return None
    facts = {"file": args.kernel_file, "backend": args.kernel_backend, "hash": args.kernel_hash}
    return msgspec.json.encode({key: value for key, value in facts.items() if value is not None}).decode()


def is_user_frame(name: str) -> bool:
    """Return whether a frame `path(line): function` is not of torch, the standard library or a built-in."""
    path, bracket, _ = name.partition("(")
    if not bracket or not path.endswith(".py"):
        return False
    if "torchinductor" in path or ("/lib/python3" in path and "-packages/" not in path):
        return False
    path = path.rpartition("-packages/")[2].lstrip("./")
    return not path.startswith(_MACHINERY) and path.partition("/")[0].removesuffix(".py") not in _STANDARD


def user_frame(stack: str | None) -> str | None:
    """Return the user's innermost frame in a call stack (of older traces: innermost frame first), or None."""
    frames = (frame.strip() for frame in (stack or "").split(";"))
    return next((frame for frame in frames if is_user_frame(frame)), None)
