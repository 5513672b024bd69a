"""The windows of a step on one device: [B_k, B_k+1), B_k = max(mark, end of the work launched before it)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.device import DeviceWork
from fathom.analysis.intervals import Array
from fathom.units import NS_PER_MS

SETTLED_SHARE = 0.05  # of a window: so much the host's lead may differ from its usual level
BEHIND_NS, BEHIND = (
    1_000_000,
    8,
)  # so late and behind so many launches, what runs first had to wait for others
UNSETTLED = "the host's lead over the device never settled, so every window is used"
SINGLE = "a single step was recorded, so nothing tells whether others are like it"
HOST = "host"  # kind of the one window of a recording without steps


class Windows(msgspec.Struct):
    """Windows of one device in time order; those of one burst tile. Leads are B - mark at start and end."""

    starts: Array
    ends: Array
    steps: Array
    bursts: Array
    kinds: list[str]
    thread: int | None  # that carries the marks
    start_leads: Array
    end_leads: Array
    used: Array = msgspec.field(default_factory=lambda: np.zeros(0, bool))
    why_not: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)  # what the reader must know of the choice
    holes: Sequence[tuple[int, int]] = ()  # in which nothing was recorded
    wanted: str | None = None  # the kind that somebody asked for

    @property
    def kind(self) -> str:
        """The kind that took the most time, or else the one that was asked for."""
        return self.wanted or dominant(self.kinds, self.ends - self.starts)

    @property
    def total_ns(self) -> int:
        """Nanoseconds of all used windows."""
        return int((self.ends - self.starts)[self.used].sum())


def dominant(kinds: list[str], lengths: Array) -> str:
    """The kind with the most total time; the first of equals.

    What a step did beside its work (`train+epoch start`) counts for its kind: a few long steps are not it.
    """
    totals: dict[str, int] = {}
    for kind, length in zip(kinds, lengths.tolist(), strict=True):
        totals[base(kind)] = totals.get(base(kind), 0) + length
    most = max(totals, key=lambda kind: totals[kind]) if totals else ""
    return most if most in kinds or not totals else next(kind for kind in kinds if base(kind) == most)


def base(kind: str) -> str:
    """The kind of a step without what it did beside its work."""
    return kind.partition("+")[0]


def make_windows(
    steps: pl.DataFrame,
    boundary: Boundary,
    kind: str | None = None,
    holes: Sequence[tuple[int, int]] = (),
) -> Windows:
    """Windows of the whole steps (not micro-steps) of `steps`, with `used` decided: those of `kind`, or
    for None of the kind that took the most time.

    A window ends where the next of its burst begins, so that they tile; the last one of a burst at the
    boundary of its own end.
    """
    rows = steps.filter(pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns")).sort("mark_ns")
    marks, ends, bursts = (rows[name].fill_null(0).to_numpy() for name in ("mark_ns", "end_ns", "burst"))
    opened, closed, closes = tiles(marks, ends, rows["stream"].to_list(), bursts, boundary)
    found = Windows(
        opened,
        closed,
        rows["step"].to_numpy(),
        bursts,
        rows["kind"].fill_null("step").to_list(),
        _mode(rows["thread"]),
        opened - marks,
        closed - closes,
        holes=holes,
        wanted=kind,
    )
    _choose(found)
    return found


def tiles(
    marks: Array, ends: Array, streams: list[int | None], bursts: Array, boundary: Boundary
) -> tuple[Array, Array, Array]:
    """(opening, closing, and the mark or end that closes it) of the windows of steps in time order."""
    follows = np.append(bursts[1:] == bursts[:-1], False)[: len(marks)]
    closes = np.where(follows, np.append(marks[1:], 0)[: len(marks)], ends)
    # Marks on different streams may have boundaries in another order than the marks: time only goes forward.
    opened = np.maximum.accumulate(_opened(boundary, marks, streams, bursts))
    last = np.maximum(boundary.at(ends, streams, bursts), opened)
    return opened, np.where(follows, np.append(opened[1:], 0)[: len(marks)], last), closes


def _opened(boundary: Boundary, marks: Array, streams: list[int | None], bursts: Array) -> Array:
    """The boundaries of marks. Among several steps of a burst, those that settle tell what was in the way."""
    at = boundary.at(marks, streams, bursts)
    steps = Counter(bursts.tolist())
    for place, burst in enumerate(bursts.tolist()):
        if steps[burst] == 1:
            at[place] = boundary.held(int(at[place]), burst)
    return at


class Boundary:
    """Where device work that was launched before an instant ends, by stream of one device and by burst.

    Of work launched before its burst began nothing tells when: it must not reach into another burst.
    """

    @classmethod
    def of(cls, work: DeviceWork | None) -> Boundary:
        """That of a device's work; None: of the processor, which has no work that was launched."""
        if work is None:
            nothing = np.zeros(0, np.int64)
            return cls(nothing, nothing, nothing, nothing, None)
        return cls(work.stream, work.launched, work.ends, work.burst, work.usual_stream, work.starts)

    def __init__(
        self,
        stream: Array,
        launched: Array,
        ends: Array,
        burst: Array,
        usual: int | None,
        starts: Array | None = None,
    ) -> None:
        self._stream, self._launched, self._ends, self._usual = stream, launched, ends, usual
        self._burst, self._starts = burst, launched if starts is None else starts
        self._reach: dict[tuple[int | None, int], tuple[Array, Array]] = {}

    def at(self, instants: Array, streams: list[int | None], bursts: Array) -> Array:
        """B of each instant on its stream; one that is null, or has no work here, means the usual stream."""
        result = instants.copy()
        places: dict[tuple[int | None, int], list[int]] = {}
        for place, (stream, burst) in enumerate(zip(streams, bursts.tolist(), strict=True)):
            places.setdefault((self._known(stream), burst), []).append(place)
        for (stream, burst), chosen in places.items():
            launched, reach = self._of(stream, burst)
            index = np.searchsorted(launched, instants[chosen], "left")
            result[chosen] = np.maximum(instants[chosen], reach[index])
        return result

    def held(self, instant: int, burst: int) -> int:
        """When a burst's first work begins, if launches queue up behind work that began before the recording.

        It cannot wait for launches that came after its own, and nothing that was recorded runs meanwhile.
        Else `instant`.
        """
        mine = np.flatnonzero(self._burst == burst)
        if not len(mine):
            return instant
        first = mine[np.argmin(self._starts[mine])]
        begins, queued = self._starts[first], (self._launched[mine] < self._starts[first]).sum()
        late = begins - self._launched[first] >= BEHIND_NS and queued > BEHIND
        return int(begins) if late and instant < begins else instant

    def _known(self, stream: int | None) -> int | None:
        return stream if stream is not None and (self._stream == stream).any() else self._usual

    def _of(self, stream: int | None, burst: int) -> tuple[Array, Array]:
        key = stream, burst
        if key not in self._reach:
            wanted = (self._stream == stream) & (self._burst == burst)
            mine = np.flatnonzero(wanted) if stream is not None else np.zeros(0, np.int64)
            order = mine[np.argsort(self._launched[mine], kind="stable")]
            ends = np.maximum.accumulate(self._ends[order])
            never = np.iinfo(np.int64).min
            self._reach[key] = self._launched[order], np.concatenate(([never], ends))
        return self._reach[key]


def _mode(column: pl.Series) -> int | None:
    values = column.drop_nulls().mode()
    return int(values.min()) if len(values) else None  # type: ignore[arg-type]


def _choose(windows: Windows) -> None:
    """Decide which windows enter the means: settled ones of the dominant kind."""
    lengths = windows.ends - windows.starts
    kind = windows.kind
    if kind == HOST:
        windows.notes.append("no step was marked, so the window is all that the host recorded")
    same = np.array([k == kind for k in windows.kinds], bool)
    settled, note = settled_of(windows, same)
    windows.notes += [note] if note else []
    chosen = same & settled & (lengths > 0)
    whole = ~_pierced(windows)
    windows.used = chosen & whole if (chosen & whole).any() else chosen
    windows.why_not = [
        "" if used else _why_not(windows, i, kind, bool(same[i])) for i, used in enumerate(windows.used)
    ]


def _pierced(windows: Windows) -> Array:
    """Which windows are mostly a hole: one ends with the next record, which may be a little after a mark."""
    found = np.zeros(len(windows.starts), bool)
    for start, end in windows.holes:
        shared = np.minimum(windows.ends, end) - np.maximum(windows.starts, start)
        found |= shared > (windows.ends - windows.starts) / 2
    return found


def settled_of(windows: Windows, same: Array) -> tuple[Array, str]:
    """Which windows had settled, by those of one kind; all of them, and why, where none of these had."""
    settled = _settled(windows, same)
    if same.any() and not (same & settled).any():
        return np.ones(len(settled), bool), UNSETTLED if same.sum() > 1 else SINGLE
    return settled, ""


def _settled(windows: Windows, same: Array) -> Array:
    """Windows from the first boundary of their burst on whose lead is near the usual one."""
    if not same.any():
        return same
    leads = windows.end_leads[same]
    usual = np.median(leads)
    scatter = np.median(np.abs(leads - usual))
    allowed = max(2 * scatter, SETTLED_SHARE * float(np.median((windows.ends - windows.starts)[same])))
    near = np.abs(windows.start_leads - usual) <= allowed
    settled = np.zeros(len(near), bool)
    for burst in np.unique(windows.bursts):
        mine = windows.bursts == burst
        settled[mine] = np.logical_or.accumulate(near[mine])
    return settled


def _why_not(windows: Windows, i: int, kind: str, same: bool) -> str:
    if not same:
        return f"the means are of {kind} steps"
    if windows.ends[i] <= windows.starts[i]:
        return "the device finished this step's work before it was marked"
    if _pierced(windows)[i]:
        return "for most of it nothing was recorded"
    return f"the host's lead over the device had not settled ({windows.start_leads[i] / NS_PER_MS:.3f} ms)"
