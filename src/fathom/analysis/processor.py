"""Programs without devices: ops are the work of the processor; and regions that the program names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.causes import REGIONS, STEPS
from fathom.analysis.columns import distinct
from fathom.analysis.communication import CALLS
from fathom.analysis.entries import Entry
from fathom.analysis.gaps import WindowRow, host_side
from fathom.analysis.host import HostRecords
from fathom.analysis.intervals import (
    NOTHING,
    Array,
    Spans,
    containing,
    covered,
    intersect,
    merge,
    of_rows,
    overlaps,
    subtract,
    union,
)
from fathom.analysis.ledger import SCHEMA, Ledger, collect
from fathom.analysis.results import Region
from fathom.analysis.sampled import few_lines
from fathom.analysis.windows import Windows
from fathom.units import NS_PER_MS

MOST = 200  # names; with more, the program probably numbers its regions, so none is shown
# Annotations that frameworks open.
_NOT_OURS = re.compile(
    r"^(fathom\.|Optimizer\.|autograd::|nccl:|gloo:|mpi:|ucc:|c10d|DistributedDataParallel|FullySharded"
    r"|FSDP|Torch-Compiled|TorchDynamo|CompiledFunction|## Call|PyTorch Profiler|\[(pl|Strategy|Callback)\]"
    rf"|cuBLAS|Lazy Function)|dynamo_timed|{STEPS}"
)


class Collectives(msgspec.Struct, frozen=True):
    """The times in which host threads run collectives; in `moving`, all peers had arrived."""

    running: Spans = NOTHING
    moving: Spans = NOTHING

    def waits(self, ops: pl.DataFrame) -> Spans:
        """Return the times in which ops that call or await collectives are open while one runs."""
        return intersect(of_rows(ops.filter(pl.col("name").str.contains(CALLS))), self.running)


def processor_ledger(
    ops: pl.DataFrame, windows: Windows, host: dict[int, HostRecords], collectives: Collectives
) -> Ledger:
    """Return a ledger that assigns each ns of the windows to a recorded cause, else to the innermost op.

    `ops` has thread, kind, name, start_ns, end_ns and burst. An op that calls or awaits a collective waits
    for peers while it runs. The part of these waits in which all peers had arrived moves bytes.
    """
    own = ops.filter(pl.col("kind") == "op")
    frames = [
        _burst(
            _of_steps(own.filter(burst=burst), host[burst]), windows, host[burst].joined, burst, collectives
        )
        for burst in distinct(windows.bursts).tolist()
    ]
    rows = pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)
    nothing = np.zeros(len(windows.starts), np.int64)
    rows = few_lines(rows)
    return Ledger(windows, rows.sort("window", "ns", descending=[False, True]), nothing, nothing)


def _of_steps(ops: pl.DataFrame, host: HostRecords) -> pl.DataFrame:
    """Return the ops of the threads that run steps."""
    return ops.filter(pl.col("thread").is_in([t for t in (host.caller, *host.beside) if t is not None]))


def _burst(
    ops: pl.DataFrame, windows: Windows, host: HostRecords, burst: int, collectives: Collectives
) -> pl.DataFrame:
    mine = np.flatnonzero(windows.bursts == burst)
    bounds = Spans(windows.starts[mine], windows.ends[mine])
    rows = host_side(bounds, host, host.caller, *bounds)
    calls = collectives.waits(ops)
    for (cause, detail), spans in host.activity(host.caller):
        if cause == Entry.DISPATCHING.cause:  # ops are the work here
            inside = intersect(spans, bounds)
            waits = intersect(inside, calls)
            work = _works(ops, subtract(inside, waits), bounds)
            rows += work + [(window, Entry.DISPATCHING, "", -ns, None) for window, _, _, ns, _ in work]
            rows += _moved(waits, Entry.DISPATCHING, "", Entry.HOST_WAITS_FOR_PEERS, bounds)
            cause, detail, spans = Entry.HOST_WAITS_FOR_PEERS.cause, "", waits
        if cause == Entry.HOST_WAITS_FOR_PEERS.cause:
            moving = intersect(spans, collectives.moving)
            rows += _moved(moving, Entry.HOST_WAITS_FOR_PEERS, detail, Entry.MOVING_BYTES, bounds)
    return collect(rows, mine)


def _moved(spans: Spans, entry: str, detail: str, to: str, bounds: Spans) -> list[WindowRow]:
    """Return rows that move the time of `spans` from one entry to another, which has no details."""
    ns = covered(spans, *bounds)
    parts = [(int(window), int(ns[window])) for window in np.flatnonzero(ns)]
    return [
        row
        for window, part in parts
        for row in ((window, to, "", part, None), (window, entry, detail, -part, None))
    ]


def nested_in(ops: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """Return a row for each op that another op calls: the window in which it began, and its caller's name."""
    own = ops.filter(pl.col("kind") == "op")
    callers = own.select("burst", parent="id", caller="name").unique(["burst", "parent"])
    nested = own.join(callers, on=["burst", "parent"])
    window = containing(Spans(windows.starts, windows.ends), nested["start_ns"].to_numpy())
    return nested.select("caller", window=pl.Series(window)).filter(pl.col("window") >= 0)


def not_waiting(
    ops: pl.DataFrame, windows: Windows, host: dict[int, HostRecords], collectives: Collectives
) -> Spans:
    """Return the time within the windows in which the thread that runs the steps did not wait for peers."""
    waiting = [
        spans
        for records in host.values()
        for (cause, _), spans in records.activity(records.caller)
        if cause == Entry.HOST_WAITS_FOR_PEERS.cause
    ]
    waiting += [collectives.waits(_of_steps(ops, records)) for records in host.values()]
    return subtract(union(windows.starts, windows.ends), merge(NOTHING, *waiting))


def _works(ops: pl.DataFrame, spans: Spans, bounds: Spans) -> list[WindowRow]:
    """Return the ops' self time within `spans` by window and name, and how many started in each window."""
    names = ops["name"].unique(maintain_order=True)
    name = ops["name"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    index, segments = innermost(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    piece, _, inside = overlaps(segments, spans)
    key = np.searchsorted(bounds.ends, inside.starts, "right") * len(names) + name[index[piece]]
    keys, inverse = np.unique(key, return_inverse=True)
    spent = np.bincount(inverse, weights=inside.ends - inside.starts, minlength=len(keys)).astype(np.int64)
    begun = Counter(zip(*_begun(ops["start_ns"].to_numpy(), name, bounds), strict=True))
    return [
        (window, Entry.OPS, names[code], ns, begun[window, code])
        for (window, code), ns in zip(
            (divmod(k, len(names)) for k in keys.tolist()), spent.tolist(), strict=True
        )
    ]


def _begun(starts: Array, name: Array, bounds: Spans) -> tuple[list[int], list[int]]:
    """Return the window and name of every op that begins inside a window."""
    op, window, _ = overlaps(Spans(starts, starts + 1), bounds)
    return window.tolist(), name[op].tolist()


def innermost(starts: Array, ends: Array) -> tuple[Array, Spans]:
    """Return the index of the innermost op of each segment, and the sorted disjoint segments of time.

    Ops of one thread nest. If clock errors make two ops overlap, the later one counts as the inner one.
    """
    order = np.lexsort((-ends, starts))
    segments: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []  # op, end
    cursor = 0

    def run(op: int, until: int) -> None:
        nonlocal cursor
        if until > cursor:
            segments.append((op, cursor, until))
            cursor = until

    for op, start, end in zip(order.tolist(), starts[order].tolist(), ends[order].tolist(), strict=True):
        while stack and stack[-1][1] <= start:
            run(*stack.pop())
        if stack:
            run(stack[-1][0], start)
        cursor = max(cursor, start)
        stack.append((op, end))
    while stack:
        run(*stack.pop())
    table = np.array(segments, np.int64).reshape(-1, 3)
    return table[:, 0], Spans(table[:, 1], table[:, 2])


def regions(ops: pl.DataFrame, kernels: pl.DataFrame, windows: Windows) -> list[Region]:
    """Return the named regions, longest first: means over the used windows, of their parts inside.

    `ops` has kind, name, thread, start_ns and end_ns; `kernels`, of one device or empty, launched, launcher,
    start_ns and end_ns. [] if there are more than MOST names.
    """
    starts, ends = windows.starts[windows.used], windows.ends[windows.used]
    named = ops.filter(kind="annotation")
    named = named.filter(~pl.col("name").str.contains(_NOT_OURS.pattern), _without_cause())
    inside = named.filter(pl.Series(covered(Spans(starts, ends), *_bounds(named)) > 0))
    if inside.is_empty() or inside["name"].n_unique() > MOST:
        return []
    order = np.argsort(starts)
    within = Spans(starts[order], ends[order])
    own = _own_ns(inside, within)
    named_regions = [
        _region(name, rows, kernels, within, own.get(name, 0))
        for (name,), rows in inside.partition_by("name", as_dict=True).items()
    ]
    return sorted(named_regions, key=lambda region: (-region.ms, region.name))


def _without_cause() -> pl.Expr:
    """Return a filter for regions without a cause; the others are entries of the ledger."""
    return ~pl.any_horizontal(pl.col("name").str.contains(known.pattern) for known in REGIONS.values())


def _bounds(rows: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    return rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()


def _region(name: str, rows: pl.DataFrame, kernels: pl.DataFrame, within: Spans, own_ns: int) -> Region:
    steps = len(within.starts)
    threads = [(thread, intersect(spans, within)) for thread, spans in _threads(rows)]
    taken = sum(spans.length for _, spans in threads)
    begun = covered(within, rows["start_ns"].to_numpy(), rows["start_ns"].to_numpy() + 1)
    device = (
        None if kernels.is_empty() else sum(_launched(kernels, *own) for own in threads) / steps / NS_PER_MS
    )
    return Region(
        name, taken / steps / NS_PER_MS, own_ns / steps / NS_PER_MS, float(begun.sum()) / steps, device
    )


def _threads(rows: pl.DataFrame) -> Iterator[tuple[int, Spans]]:
    for (thread,), mine in rows.partition_by("thread", as_dict=True).items():
        yield thread, of_rows(mine)


def _launched(kernels: pl.DataFrame, thread: int, spans: Spans) -> int:
    """Return the nanoseconds of device work that the thread launched within `spans`."""
    mine = kernels.filter(pl.col("launcher") == thread).drop_nulls("launched")
    at = mine["launched"].to_numpy()
    inside = covered(spans, at, at + 1) > 0
    return int((mine["end_ns"] - mine["start_ns"]).to_numpy()[inside].sum())


def _own_ns(rows: pl.DataFrame, within: Spans) -> dict[str, int]:
    """Return the nanoseconds within the windows by name, without nested regions."""
    own_ns: dict[str, int] = {}
    for (_,), mine in rows.partition_by("thread", as_dict=True).items():
        index, segments = innermost(*_bounds(mine))
        taken = covered(within, segments.starts, segments.ends)
        for op, ns in zip(index.tolist(), taken.tolist(), strict=True):
            name = mine["name"][op]
            own_ns[name] = own_ns.get(name, 0) + int(ns)
    return own_ns
