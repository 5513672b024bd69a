"""The windows of steps on one device: [B_k, B_k+1), B_k = max(mark, end of the work launched before it)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct, filled
from fathom.analysis.device import DeviceWork
from fathom.analysis.intervals import Array
from fathom.analysis.results import step_noun
from fathom.units import NS_PER_MS

SETTLED_SHARE = 0.05  # of a window: a settled lead differs from the usual one by at most this
# If the first work of a burst begins this long after its launch, and after this many launches, it waited for
# unrecorded work.
BEHIND_NS, BEHIND = 1_000_000, 8
UNSETTLED = "the host's lead over the device never settled, so every window is used"
SINGLE = "only one step was recorded, which may not be typical"
CUT = 0.5  # of the usual number of launches: a last step of a trace with fewer was cut, or is empty
PROFILER = "profiler"  # source of steps whose last one ends where the trace does
HOST = "host"  # kind of the one window of a recording without steps
WAITING = "waiting"  # kind of the steps in which a serving engine had no request


class Windows(msgspec.Struct):
    """Windows of one device, sorted, in ns; those of a burst tile it. Leads are B - mark at start and end."""

    starts: Array
    ends: Array
    steps: Array
    bursts: Array
    kinds: list[str]
    thread: int | None  # the thread of the marks
    start_leads: Array
    end_leads: Array
    used: Array = msgspec.field(default_factory=lambda: np.zeros(0, bool))
    why_not: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)  # sentences on how the used windows were chosen
    holes: Sequence[tuple[int, int]] = ()  # gaps in the recording
    wanted: str | None = None  # the requested kind
    cut: Array = msgspec.field(default_factory=lambda: np.zeros(0, bool))  # the trace ends before its work

    @property
    def kind(self) -> str:
        """The requested kind of step, or else the kind with the most time."""
        return self.wanted or dominant(self.kinds, self.ends - self.starts)

    @property
    def total_ns(self) -> int:
        """Total length of the used windows in ns."""
        return int((self.ends - self.starts)[self.used].sum())


def dominant(kinds: list[str], lengths: Array) -> str:
    """Return the kind with the most total time.

    Steps with additional work (`train+epoch start`) count as their base kind, so that a few long steps do not
    win. Steps in which an engine had no request win only alone.
    """
    totals: dict[str, int] = {}
    for kind, length in zip(kinds, lengths.tolist(), strict=True):
        totals[base(kind)] = totals.get(base(kind), 0) + length
    works = [kind for kind in totals if kind != WAITING] or list(totals)
    most = max(works, key=lambda kind: totals[kind], default="")
    return most if most in kinds or not totals else next(kind for kind in kinds if base(kind) == most)


def base(kind: str) -> str:
    """Return the kind of a step without its additional work."""
    return kind.partition("+")[0]


def make_windows(
    steps: pl.DataFrame,
    boundary: Boundary,
    kind: str | None = None,
    holes: Sequence[tuple[int, int]] = (),
) -> Windows:
    """Return the windows of the steps (not micro-steps) in the table `steps`; those of `kind` are used.

    By default, the kind with the most time is used. A window ends where the next window of its burst begins;
    the last window of a burst ends at the boundary of its step's end.
    """
    rows = steps.filter(pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns")).sort("mark_ns")
    marks, ends, bursts = (filled(rows[name], 0).to_numpy() for name in ("mark_ns", "end_ns", "burst"))
    opened, closed, closes = tiles(marks, ends, rows["stream"].to_list(), bursts, boundary)
    windows = Windows(
        opened,
        closed,
        rows["step"].to_numpy(),
        bursts,
        filled(rows["kind"], "step").to_list(),
        _mode(rows["thread"]),
        opened - marks,
        closed - closes,
        holes=holes,
        wanted=kind,
    )
    windows.cut = _cut(windows, boundary.launched_in(marks, closes, bursts), rows)
    _choose(windows)
    return windows


def _cut(windows: Windows, launched: Array, steps: pl.DataFrame) -> Array:
    """Return a mask of the last windows of bursts with far fewer launches than the others of their kind.

    The profiler marks a step when it begins, so it also marks the one in which it stops.
    """
    last = np.append(windows.bursts[1:] != windows.bursts[:-1], True)[: len(launched)]
    sources = steps.get_column("source", default=pl.Series([None] * len(launched), dtype=pl.String))
    last &= (sources == PROFILER).fill_null(False).to_numpy()
    others = np.array([k == windows.kind for k in windows.kinds], bool) & ~last
    if not others.any():
        return np.zeros(len(launched), bool)
    return last & (launched < CUT * np.median(launched[others]))


def tiles(
    marks: Array, ends: Array, streams: list[int | None], bursts: Array, boundary: Boundary
) -> tuple[Array, Array, Array]:
    """Return the starts and ends of the windows of sorted steps, and the mark or end that closes each."""
    follows = np.append(bursts[1:] == bursts[:-1], False)[: len(marks)]
    closes = np.where(follows, np.append(marks[1:], 0)[: len(marks)], ends)
    # Boundaries of marks on different streams may be in another order than the marks.
    opened = np.maximum.accumulate(_opened(boundary, marks, streams, bursts))
    last = np.maximum(boundary.at(ends, streams, bursts), opened)
    return opened, np.where(follows, np.append(opened[1:], 0)[: len(marks)], last), closes


def _opened(boundary: Boundary, marks: Array, streams: list[int | None], bursts: Array) -> Array:
    """Return the boundaries of marks; in a burst of one step, also after any unrecorded earlier work."""
    at = boundary.at(marks, streams, bursts)
    steps = Counter(bursts.tolist())
    for place, burst in enumerate(bursts.tolist()):
        if steps[burst] == 1:
            at[place] = boundary.after_unrecorded(int(at[place]), burst)
    return at


class Boundary:
    """The end of the device work launched before an instant, per stream of one device and per burst.

    If the launch of work was not recorded, as it precedes its burst, the work counts for that burst only.
    """

    @classmethod
    def of(cls, work: DeviceWork | None) -> Boundary:
        """Return the boundary of a device's work; None: of the processor, which has no launches."""
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
        """Return the boundary of each instant on its stream.

        A null stream, or one without work, means the stream with the most compute time.
        """
        result = instants.copy()
        places: dict[tuple[int | None, int], list[int]] = {}
        for place, (stream, burst) in enumerate(zip(streams, bursts.tolist(), strict=True)):
            places.setdefault((self._known(stream), burst), []).append(place)
        for (stream, burst), chosen in places.items():
            launched, reach = self._of(stream, burst)
            index = np.searchsorted(launched, instants[chosen], "left")
            result[chosen] = np.maximum(instants[chosen], reach[index])
        return result

    def launched_in(self, starts: Array, ends: Array, bursts: Array) -> Array:
        """Return the number of pieces of work that were launched in each interval of a burst."""
        counts = np.zeros(len(starts), np.int64)
        for burst in distinct(bursts):
            mine, launched = bursts == burst, np.sort(self._launched[self._burst == burst])
            counts[mine] = np.diff(np.searchsorted(launched, [starts[mine], ends[mine]]), axis=0)[0]
        return counts

    def after_unrecorded(self, instant: int, burst: int) -> int:
        """Return the start of a burst's first work if it waited for unrecorded work, else `instant`.

        The first work cannot have waited for later launches, and no recorded work ran before it.
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
    """Choose the windows that enter the means: settled ones of the chosen kind."""
    lengths = windows.ends - windows.starts
    kind = windows.kind
    if kind == HOST:
        windows.notes.append("no step was marked, so the window covers everything recorded on the host")
    same = np.array([k == kind for k in windows.kinds], bool)
    settled, note = settled_of(windows, same)
    windows.notes += [note] if note else []
    chosen = same & settled & (lengths > 0)
    recorded = ~_pierced(windows) & ~windows.cut
    windows.used = chosen & recorded if (chosen & recorded).any() else chosen
    windows.why_not = [
        "" if used else _why_not(windows, i, kind, bool(same[i])) for i, used in enumerate(windows.used)
    ]


def _pierced(windows: Windows) -> Array:
    """Return a mask of the windows that are mostly a gap in the recording.

    A gap ends with the next record, shortly after a mark.
    """
    mask = np.zeros(len(windows.starts), bool)
    for start, end in windows.holes:
        shared = np.minimum(windows.ends, end) - np.maximum(windows.starts, start)
        mask |= shared > (windows.ends - windows.starts) / 2
    return mask


def settled_of(windows: Windows, same: Array) -> tuple[Array, str]:
    """Return a mask of the settled windows, judged by those in `same`; if there are none, all, and why."""
    settled = _settled(windows, same)
    if same.any() and not (same & settled).any():
        return np.ones(len(settled), bool), UNSETTLED if same.sum() > 1 else SINGLE
    return settled, ""


def _settled(windows: Windows, same: Array) -> Array:
    """Return a mask of each burst's windows from the first one whose lead is near the usual lead."""
    if not same.any():
        return same
    leads = windows.end_leads[same]
    usual = np.median(leads)
    scatter = np.median(np.abs(leads - usual))
    allowed = max(2 * scatter, SETTLED_SHARE * float(np.median((windows.ends - windows.starts)[same])))
    near = np.abs(windows.start_leads - usual) <= allowed
    settled = np.zeros(len(near), bool)
    for burst in distinct(windows.bursts):
        mine = windows.bursts == burst
        settled[mine] = np.logical_or.accumulate(near[mine])
    return settled


def _why_not(windows: Windows, i: int, kind: str, same: bool) -> str:
    if not same:
        return f"the means are of {step_noun(kind)}s"
    if windows.ends[i] <= windows.starts[i]:
        return "the device finished this step's work before it was marked"
    if windows.cut[i]:
        return "the trace ends before this step's work"
    if _pierced(windows)[i]:
        return "nothing was recorded for most of it"
    return f"the host's lead over the device had not settled ({windows.start_leads[i] / NS_PER_MS:.3f} ms)"
