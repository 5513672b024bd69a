"""Events of a Kineto trace for msgspec: only the fields that the tables need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, field

NOTHING = Raw(b"")
_NO_NUMBER = re.compile(rb"(?<=[:\[,\s])-?(?:nan|inf|NaN|Infinity)(?=\s*[,\]}])")  # as C prints them


class Args(msgspec.Struct, gc=False, frozen=True):
    """`args` of an event, loosely typed because profilers differ; Raw fields are slices of the file."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    grid: Raw = NOTHING
    block: Raw = NOTHING
    registers: Any = field(default=None, name="registers per thread")
    shared: Any = field(default=None, name="shared memory")
    local: Any = field(default=None, name="local memory per thread")
    node: Any = field(default=None, name="graph node id")
    shapes: Raw = field(default=NOTHING, name="Input Dims")
    dtypes: Raw = field(default=NOTHING, name="Input type")
    values: Raw = field(default=NOTHING, name="Concrete Inputs")
    module: Any = field(default=None, name="Module Hierarchy")
    stack: Any = field(default=None, name="Call stack")
    size: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=None, name="Total Allocated")
    reserved: Any = field(default=None, name="Total Reserved")
    owner: Any = field(default=None, name="Device Id")
    address: Any = field(default=None, name="Addr")
    kernel_file: Any = None
    kernel_backend: Any = None
    kernel_hash: Any = None
    collective: Any = field(default=None, name="Collective name")
    element: Any = field(default=None, name="dtype")
    sent: Any = field(default=None, name="In msg nelems")
    received: Any = field(default=None, name="Out msg nelems")
    ranks: Any = field(default=None, name="Group size")
    group: Any = field(default=None, name="Process Group Name")
    description: Any = field(default=None, name="Process Group Description")
    members: Any = field(default=None, name="Process Group Ranks")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event. Times are microseconds: integers, or floats, which are exact to the ns up to 2^43 µs."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args = NO_ARGS


class ExactEvent(Event, gc=False):
    """One event whose times stay text, because float64 would be too coarse for them."""

    ts: Raw = NOTHING  # type: ignore[assignment]
    dur: Raw = NOTHING  # type: ignore[assignment]


# The types of an event, of one whose times are text, and of their arguments.
Kinds = tuple[type[Event], type[Event], Any]
KINDS: Kinds = (Event, ExactEvent, Args)


class Decoder:
    """Decode lists of events, and damaged events one by one."""

    def __init__(self, exact: bool, kinds: Kinds = KINDS) -> None:
        self._kind, self._args = kinds[exact], kinds[2]
        self._time: Callable[[Any], Any] = _as_text if exact else _as_number
        # Decodes a list of events. Raises msgspec.DecodeError if one is damaged.
        self.all = msgspec.json.Decoder(list[self._kind]).decode  # type: ignore[name-defined]
        self._one = msgspec.json.Decoder(self._kind).decode

    def damaged(self, text: bytes) -> Event:
        """Decode one event; fields of the wrong type and invalid numbers become None.

        Raises ValueError if the text is not a JSON object, RecursionError if it is nested too deeply.
        """
        try:
            return self._one(text)
        except (msgspec.DecodeError, RecursionError):
            numbered = _NO_NUMBER.sub(b"null", text).decode()
        fields = json.loads(numbered, parse_float=Decimal, parse_constant=lambda _: None)
        args = fields.get("args")
        return self._kind(
            ph=_text(fields.get("ph")),
            cat=_text(fields.get("cat")),
            name=_text(fields.get("name")),
            pid=fields.get("pid"),
            tid=fields.get("tid"),
            ts=self._time(fields.get("ts")),
            dur=self._time(fields.get("dur")),
            args=msgspec.json.decode(json.dumps(args, default=str), type=self._args)
            if isinstance(args, dict)
            else self._args(),
        )


def _text(value: Any) -> str | None:
    # JSON may contain half of a surrogate pair, which a table cannot hold.
    return value.encode(errors="replace").decode() if isinstance(value, str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _as_number(value: Any) -> int | float | None:
    if not _is_number(value):
        return None
    return value if isinstance(value, int) else float(value)


def _as_text(value: Any) -> Raw:
    return Raw(str(value)) if _is_number(value) else NOTHING
