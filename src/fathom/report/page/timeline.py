"""The timeline of one step: streams, host threads and waits; counters beneath; stacks of the host."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, TypedDict, final

import numpy as np
import numpy.typing as npt
import polars as pl

from fathom.analysis import detail
from fathom.analysis.entries import Entry
from fathom.analysis.results import Device, Window
from fathom.report import units
from fathom.report.page.colours import of_entry
from fathom.report.page.figure import Figure, altair, coloured
from fathom.report.page.recording import Recording, Section
from fathom.report.page.stacks import stacks
from fathom.sounding import Store
from fathom.units import NS_PER_MS

MOST = 1500  # events of the device, and of the host; the longest ones
DEPTH = 3  # nested ops of a host thread
THREADS = 4
BINS = 240  # of a counter's track
HOST = "host"
_ENTRY = {"compute": str(Entry.COMPUTE), "collective": str(Entry.COMMUNICATION)}
_TRACKS = 7


class Event(NamedTuple):
    """An event as it was recorded, in a lane."""

    lane: str
    name: str
    entry: str
    start_ns: int
    end_ns: int


@final
class Bar(TypedDict):
    """An event from `a` to `b` ms of the step."""

    lane: str
    name: str
    entry: str
    a: float
    b: float
    time: str


@final
class Strip(TypedDict):
    """The value of a counter from `a` to `b` ms, in per cent of its peak."""

    lane: str
    a: float
    b: float
    value: float


def section(recording: Recording) -> Section | None:
    """Return the timeline of a step of median length, one with counters, and the host's stacks."""
    if recording.store is None:
        return None
    drawn = [_step(recording, recording.store), _sampled(recording, recording.store), stacks(recording.store)]
    figures = [figure for figure in drawn if figure is not None]
    return (
        Section("timeline", f"Timeline of one {recording.noun}", {}, figures, brief="Timeline")
        if figures
        else None
    )


def _median(device: Device) -> Window | None:
    used = sorted((w for w in device.windows if w.used), key=lambda w: w.end_ns - w.start_ns)
    return used[len(used) // 2] if used else None


def _step(recording: Recording, store: Store) -> Figure[Bar | Strip] | None:
    device = next((d for d in recording.examination.devices if _median(d)), None)
    window = _median(device) if device else None
    if device is None or window is None:
        return None
    inside = (pl.col("end_ns") > window.start_ns) & (pl.col("start_ns") < window.end_ns)
    events = [
        *_kernels(store, device, inside),
        *(_host(store, device.rank, inside) or _calls(store, device.rank, inside)),
        *_waits(store, device.rank, inside),
    ]
    rows = [_placed(event, window.start_ns, window.end_ns) for event in events]
    if not rows:
        return None
    length = (window.end_ns - window.start_ns) / NS_PER_MS
    which = "" if window.step is None else f" {window.step}"
    return Figure(
        "timeline",
        f"{recording.noun.capitalize()}{which} as profiled, {units.duration(length)}" + _limited(rows),
        f"{len(rows)} events: streams of {device.label}, ops or runtime calls of host threads, and waits.",
        [*rows],
        _draw,
        _longest(rows),
        True,
    )


def _limited(rows: list[Bar]) -> str:
    counts = Counter(row["entry"] == HOST for row in rows)
    return "; only the longest events are shown" if max(counts.values()) >= MOST else ""


def _placed(event: Event, start: int, end: int) -> Bar:
    """Return the event with its times in ms since the start of the step, cut at the step's ends.

    An event that was cut has the time of its part in the step first, then its own.
    """
    begins, ends = max(event.start_ns, start), min(event.end_ns, end)
    full, part = (units.duration(ns / NS_PER_MS) for ns in (event.end_ns - event.start_ns, ends - begins))
    return {
        "lane": event.lane, "name": event.name, "entry": event.entry,
        "a": round((begins - start) / NS_PER_MS, 6), "b": round((ends - start) / NS_PER_MS, 6),
        "time": full if full == part else f"{part} of {full}",
    }  # fmt: skip


def _kernels(store: Store, device: Device, inside: pl.Expr) -> list[Event]:
    index = device.device.rpartition(":")[2]
    if not index.isdigit():
        return []
    frame = store.table("kernels", device.rank).filter(inside, device=int(index)).collect()
    frame = frame.with_columns(name=detail(), time=pl.col("end_ns") - pl.col("start_ns"))
    wanted = ("stream", "name", "kind", "start_ns", "end_ns")
    frame = frame.sort("time", descending=True).head(MOST).sort("stream", "start_ns")
    return [
        Event(f"stream {stream}", name, _ENTRY.get(kind, str(Entry.COPY)), start, end)
        for stream, name, kind, start, end in frame.select(wanted).iter_rows()
    ]


def _host(store: Store, rank: int, inside: pl.Expr) -> list[Event]:
    """Return the ops of the busiest threads, by their depth of nesting."""
    wanted = ("thread", "name", "start_ns", "end_ns")
    frame = store.table("ops", rank).filter(inside, pl.col("inferred").fill_null(False).not_()).select(wanted)
    ops = frame.sort("thread", "start_ns", "end_ns", descending=[False, False, True]).collect()
    counts = ops.group_by("thread").len().sort("len", descending=True)["thread"].head(THREADS).to_list()
    events = []
    open_ends: dict[int, list[int]] = {}
    for thread, name, start, end in ops.iter_rows():
        around = open_ends.setdefault(thread, [])
        while around and around[-1] <= start:
            around.pop()
        around.append(end)
        if len(around) <= DEPTH and thread in counts:
            lane = f"host {counts.index(thread) + 1}, level {len(around)}"
            events.append(Event(lane, name, HOST, start, end))
    longest = sorted(events, key=lambda event: event.start_ns - event.end_ns)[:MOST]
    return sorted(longest, key=lambda event: (event.lane, event.start_ns))


def _calls(store: Store, rank: int, inside: pl.Expr) -> list[Event]:
    """Return the runtime calls of the busiest threads, for timelines that were recorded without ops."""
    wanted = pl.col("thread"), pl.col("api").alias("name"), pl.col("start_ns"), pl.col("end_ns")
    frame = store.table("launches", rank).filter(inside, pl.col("thread").is_not_null()).select(wanted)
    calls = frame.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True).head(MOST).collect()
    counts = calls.group_by("thread").len().sort("len", "thread", descending=[True, False])
    places = {thread: place for place, thread in enumerate(counts["thread"].head(THREADS).to_list(), 1)}
    return [
        Event(f"host {places[thread]}, calls", api, HOST, start, end)
        for thread, api, start, end in calls.sort("thread", "start_ns").iter_rows()
        if thread in places
    ]


def _waits(store: Store, rank: int, inside: pl.Expr) -> list[Event]:
    frame = store.table("waits", rank).filter(inside).sort("start_ns").head(MOST).collect()
    return [
        Event("waits", f"{cause} {detail or ''}".strip(), f"idle: {cause}", start, end)
        for cause, detail, start, end in frame.select("cause", "detail", "start_ns", "end_ns").iter_rows()
    ]


def _longest(rows: list[Bar]) -> list[list[str]]:
    """Return the longest events as a table; the whole timeline is too long to be read out."""
    table = [["Lane", "Event", "From ms", "Time"]]
    longest = sorted(rows, key=lambda row: row["a"] - row["b"])[:20]
    return table + [[r["lane"], r["name"], f"{r['a']:.3f}", r["time"]] for r in longest]


def _sampled(recording: Recording, store: Store) -> Figure[Bar | Strip] | None:
    """Return the kernels of one step of the counters phase with the samples above them."""
    if not store.has("samples") or not recording.portraits:
        return None
    from fathom.analysis.folding import counters_of, excerpt_of_step

    first = recording.portraits[0]
    excerpt = excerpt_of_step(store, first.rank, first.device, counters_of(store, first.rank))
    if excerpt is None or excerpt.kernels.is_empty():
        return None
    events = [
        _placed(Event(f"stream {stream}", label, str(Entry.COMPUTE), start, end), 0, excerpt.length_ns)
        for stream, label, start, end in excerpt.kernels.select("stream", "label", "start", "end").iter_rows()
    ]
    names = [name for name in WANTED if name in excerpt.values] or list(excerpt.values)[:_TRACKS]
    tracks = [
        row for name in names for row in _track(name, excerpt.starts, excerpt.ends, excerpt.values[name])
    ]
    table = [["Counter", "Mean %"]]
    table += [[WANTED.get(n, n), f"{np.nanmean(excerpt.values[n]):.1f}"] for n in names]
    return Figure(
        "counters",
        f"A step with counters, {units.duration(excerpt.length_ns / NS_PER_MS)}",
        f"Kernels of one step, and {len(names)} hardware counters in per cent of their peak beneath them.",
        [*events, *tracks],
        _draw,
        table,
        True,
    )


WANTED = {
    "sm__cycles_active": "SM active",
    "sm__pipe_tensor_cycles_active_realtime": "tensor cores",
    "sm__inst_executed_realtime": "instructions",
    "tpc__warps_active_shader_cs_realtime": "warps active",
    "dramc__read_throughput": "DRAM reads",
    "dramc__write_throughput": "DRAM writes",
    "lts__t_sector_throughput": "L2",
}


def _track(
    name: str, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> list[Strip]:
    """Return means of neighbouring samples, at most BINS of them, without those that lack this counter."""
    known = np.flatnonzero(np.isfinite(values))
    parts = np.array_split(known, min(BINS, len(known))) if len(known) else []
    return [
        {"lane": WANTED.get(name, name), "a": round(float(starts[p[0]]) / NS_PER_MS, 6),
         "b": round(float(ends[p[-1]]) / NS_PER_MS, 6), "value": round(float(values[p].mean()), 2)}
        for p in parts
    ]  # fmt: skip


def _draw(rows: list[Bar | Strip]) -> Any:
    """Return lanes of events over lanes of counters; `begin` and `finish` are the visible ms."""
    alt = altair()
    events, tracks = [r for r in rows if "entry" in r], [r for r in rows if "value" in r]
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    end = max(row["b"] for row in rows)
    begin, finish = alt.param(name="begin", value=0), alt.param(name="finish", value=end)
    scale = alt.Scale(domain=[{"expr": "begin"}, {"expr": "finish"}], nice=False, zero=False)
    x = alt.X("a:Q", scale=scale, title="ms since the start of the step", axis=alt.Axis(tickCount=8))
    y = alt.Y("lane:N", sort=lanes, title=None, scale=alt.Scale(domain=lanes), axis=alt.Axis(labelLimit=110))
    entries = dict.fromkeys(row["entry"] for row in events)
    colours = {entry: "#7f93ab" if entry == HOST else of_entry(entry) for entry in entries}
    bars = alt.Chart(alt.Data(values=events)).mark_bar(clip=True, stroke="white", strokeWidth=0.15)
    hover = ["name:N", "entry:N", "time:N", alt.Tooltip("a:Q", title="from ms", format=".4~f")]
    bars = bars.encode(x=x, x2="b:Q", y=y, color=coloured(alt, "entry", colours), tooltip=hover)
    chart = bars
    if tracks:
        heat = alt.Color("value:Q", scale=alt.Scale(domain=[0, 100], scheme="viridis"),
                         legend=alt.Legend(orient="top", title="% of peak", gradientLength=120))  # fmt: skip
        strips = alt.Chart(alt.Data(values=tracks)).mark_bar(clip=True)
        strips = strips.encode(x=x, x2="b:Q", y=y, color=heat, tooltip=["lane:N", "value:Q", "a:Q"])
        chart = alt.layer(bars, strips).resolve_scale(color="independent")
    return chart.add_params(begin, finish).properties(height=20 * len(lanes))
