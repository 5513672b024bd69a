"""Changes to replay, `SELECTOR=FACTOR` or `SELECTOR=DURATION`, and the records that selectors apply to."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import isfinite

import msgspec

from fathom.analysis.entries import Entry, causes_of, idle_entry
from fathom.errors import BadInputError
from fathom.units import MB, bytes_of

# Selectors of device work, with the kinds that they act on (() for all), and of host time, by cause.
DEVICE = {
    "family": (),
    "all-kernels": ("compute",),
    "copy": ("copy", "set"),
    "communication": ("collective",),
    "exposed": ("collective",),
}
EXPOSED = "exposed"  # `exposed=0`: collectives overlap with compute perfectly
CAUSES = causes_of(
    Entry.PYTHON,
    Entry.DISPATCHING,
    Entry.BLOCKED,
    Entry.GC,
    Entry.FIRST_USE,
    Entry.ALLOCATOR,
    Entry.COMPILATION,
    Entry.CHECKPOINT,
)
# The forward pass that the backward pass repeats: host time, and the device work that it launched.
RECOMPUTED = "recomputed"
HOST = ("op", "launch", "input", "sync", *CAUSES)
# Waits of ranks for each other: all of them (`waiting=0`), or those for one rank (`late:39=0`).
WAITING, LATE = "waiting", "late"
LOW, HIGH = "low", "high"
BUCKET = "bucket"  # `bucket=100MB`: all-reduces of gradients, merged or split to this size
LINK = "link"  # `link=2`: links that are twice as fast, so that collectives move their bytes in half the time
# Gaps between kernels of one stream, and the time from a launch to the start of its kernel.
DEVICE_SIDE = ("device-gap", "launch-latency")
NAMED = ("family", "op", LATE)  # need a pattern
MAY_NAME = (*NAMED, "copy", "communication", "all-kernels")
ZERO_ONLY = ("sync", WAITING, LATE, EXPOSED)
MAY_SET = ("family", "all-kernels", "copy", "communication", "launch", "input")
ENTRIES: dict[str, str] = {  # the selector that changes an entry of the ledger
    Entry.COMPUTE: "all-kernels",
    Entry.COMMUNICATION: "communication",
    Entry.MOVING_BYTES: "communication",
    Entry.WAITING_FOR_PEERS: WAITING,
    Entry.COPY: "copy",
    Entry.INPUT: "input",
    Entry.SYNCHRONISATION: "sync",
    Entry.LAUNCH_LATENCY: "launch-latency",
    Entry.DEVICE_GAP: "device-gap",
    **{idle_entry(cause): cause for cause in CAUSES},
}
_UNITS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_MOST = 1e6  # the largest factor, or duration in ms, so that int64 nanoseconds do not overflow
_VALUE = re.compile(r"(?P<number>[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?P<unit>[a-zµ]*)")
SPELLED = {cause.replace(" ", "-"): cause for cause in CAUSES}  # selectors have hyphens, entries have blanks
FORMS = (
    "family:NAME, op:NAME, entry:ROW, all-kernels, copy, communication, launch, launch-latency, device-gap, "
    f"input, sync, {RECOMPUTED}, {WAITING}, {LATE}:RANK, {LINK}, {EXPOSED}, {BUCKET}, " + ", ".join(SPELLED)
)


class Change(msgspec.Struct, frozen=True):
    """One change: multiply the durations named by `selector` and `pattern` by `factor`, or set them to `ns`.

    The factor of `bucket` is the size in bytes, and its pattern the bound of the fixed time of a collective
    to use: "" (the usual value), LOW or HIGH. Any other pattern matches anywhere in a name and ignores case;
    `*` matches anything. A pattern in double quotes must equal the name.
    """

    selector: str
    pattern: str = ""
    factor: float | None = None
    ns: float | None = None

    @property
    def of_the_host(self) -> bool:
        """Whether the change affects host time only."""
        return self.selector not in (*DEVICE, RECOMPUTED, WAITING, LATE, BUCKET)

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches `name`."""
        if self.pattern.startswith('"') and self.pattern.endswith('"'):
            return name == self.pattern[1:-1]
        pattern = self.pattern.lower()
        if "*" not in pattern:
            return pattern in name.lower()
        return fnmatchcase(name.lower(), f"*{pattern.replace('[', '[[]').replace('?', '[?]')}*")

    def of(self, ns: float) -> float:
        """Return the new value of a duration in ns."""
        return self.ns if self.ns is not None else ns * (1.0 if self.factor is None else self.factor)

    def __str__(self) -> str:
        if self.selector == BUCKET:
            return f"{BUCKET}={(self.factor or 0) / MB:g}MB"
        what = f"{self.selector}:{self.pattern}" if self.pattern else self.selector
        return f"{what}={self.factor:g}" if self.factor is not None else f"{what}={(self.ns or 0) / 1e3:g}us"


def parse(text: str) -> Change:
    """Parse `family:softmax=0.5`, `entry:idle: python=0` or `launch=4us`. Raises BadInputError."""
    what, equals, value = text.rpartition("=")
    if not equals or not what.strip():
        raise BadInputError(f"'{text}' is not a change; write SELECTOR=FACTOR with one of: {FORMS}.")
    selector, _, pattern = (part.strip() for part in what.partition(":"))
    selector = SPELLED.get(selector, selector)
    if selector == BUCKET:
        return _of_bucket(text, pattern, value)
    if selector == "entry":
        selector, pattern = _of_entry(pattern), ""
    _check(text, selector, pattern)
    factor, ns = _value(text, value.strip())
    if ns is not None and selector not in MAY_SET:
        raise BadInputError(f"'{text}' sets a duration, which only {', '.join(MAY_SET)} take; give a factor.")
    if selector in ZERO_ONLY and factor != 0:
        raise BadInputError(f"{_ZERO[selector]} can only be removed completely; write {what.strip()}=0.")
    if selector == LINK:
        return _of_link(text, factor)
    return Change(selector, pattern, factor, ns)


_ZERO = {"sync": "Synchronisation", WAITING: "Waiting for peers", LATE: "The lateness of a rank",
         EXPOSED: "Exposed communication"}  # fmt: skip


def _of_bucket(text: str, pattern: str, value: str) -> Change:
    size = bytes_of(value)
    if pattern or not size or not value.strip().endswith("B"):
        raise BadInputError(f"'{text}' needs a size after the =, like {BUCKET}=100MB or {BUCKET}=25MiB.")
    return Change(BUCKET, "", size)


def _of_link(text: str, factor: float | None) -> Change:
    if not factor:
        raise BadInputError(f"'{text}' needs a factor above 0 for the speed of the links, like link=2.")
    return Change("communication", "", 1.0 / factor, None)


def _check(text: str, selector: str, pattern: str) -> None:
    if selector not in (*DEVICE, *HOST, *DEVICE_SIDE, RECOMPUTED, WAITING, LATE, LINK):
        raise BadInputError(f"'{text}' has an unknown selector; the selectors are {FORMS}.")
    if selector == LATE and not pattern.isdecimal():
        raise BadInputError(f"'{text}' needs the number of a rank after the colon, like late:7=0.")
    if selector in NAMED and not pattern:
        raise BadInputError(f"'{text}' needs a name after the colon, like {selector}:softmax=0.5.")
    if pattern and selector not in MAY_NAME:
        raise BadInputError(f"'{selector}' takes no name; write {selector}=FACTOR.")


def _of_entry(row: str) -> str:
    if row not in ENTRIES:
        raise BadInputError(f"No change of the row '{row}' can be replayed; try {', '.join(ENTRIES)}.")
    return ENTRIES[row]


def _value(text: str, value: str) -> tuple[float | None, float | None]:
    """Return (factor, None) or (None, ns)."""
    match = _VALUE.fullmatch(value)
    try:
        number = float(match["number"]) if match else -1.0
    except ValueError:
        number = -1.0
    if match is None or number < 0 or not isfinite(number) or (match["unit"] and match["unit"] not in _UNITS):
        raise BadInputError(f"'{text}' needs a factor or a duration after the =, like 0.5 or 20us.")
    ns = number * _UNITS[match["unit"]] if match["unit"] else None
    if (number if ns is None else ns / _UNITS["ms"]) > _MOST:
        raise BadInputError(
            f"'{text}' asks for more than can be replayed; give a factor or ms up to a million."
        )
    return (number, None) if ns is None else (None, ns)
