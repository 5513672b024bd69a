"""Sampled stacks of the thread that runs the steps: where it spends time, and the calls that block it."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Array, Spans, overlaps, subtract, union

Label = tuple[str, str]  # cause, detail

PYTHON, DISPATCHING, BLOCKED = Entry.PYTHON.cause, Entry.DISPATCHING.cause, Entry.BLOCKED.cause
NO_WORK, INPUT, PEERS = Entry.NO_WORK.cause, Entry.INPUT.cause, Entry.HOST_WAITS_FOR_PEERS.cause
LINES = (Entry.PYTHON, Entry.DISPATCHING, Entry.BLOCKED)  # entries whose details are lines
MOST_LINES, OTHER_LINES = 8, "other lines"
LEAST_SHARE = 0.02  # of its entry's time: smaller lines are summed
# Time gets the line of the nearest sample within the larger of these two distances.
REACH_NS = 20_000_000
REACH = 4  # times the median interval between samples, which grows on a busy machine

_PROBE = re.compile(r"/fathom/probe/(?!inject)")
_STANDARD = re.compile(r"/lib(64)?/python3[^/]*/(?!site-packages|dist-packages)|^<frozen")
_LOADER = re.compile(r"/torch/utils/data/")
_DISTRIBUTED = re.compile(r"/torch/distributed/")
_BACKWARD = re.compile(r"_engine_run_backward \(")
_ACCEPTS = re.compile(r"^(accept4?|epoll_wait|epoll_pwait2?)$")
_LISTENS = re.compile(r"^(select|pselect6|p?poll)$")
_SERVER = re.compile(r"/(selectors|socketserver|asyncio/\w+|http/server)\.py:")
_OTHER_PROCESS = re.compile(r"/(multiprocessing/\w+|concurrent/futures/process|subprocess)\.py:")
_QUEUE = re.compile(r"(^|;)Queue\.get \([^;]*/queue\.py:")


class Setting(msgspec.Struct, frozen=True):
    """Facts that decide between causes; `engine` is True if autograd's engine has threads (with devices)."""

    training: bool = False
    several_ranks: bool = False
    engine: bool = False


class Samples(msgspec.Struct, frozen=True):
    """Samples of one thread in time order; `label` indexes `labels`."""

    thread: int
    times: Array
    label: Array
    labels: list[Label]

    @property
    def reach_ns(self) -> int:
        """Largest distance in ns from a sample to the time that it labels."""
        usual = int(np.median(np.diff(self.times))) if len(self.times) > 1 else 0
        return max(REACH_NS, REACH * usual)

    def split(self, spans: Spans, cause: str) -> list[tuple[Label, Spans]]:
        """Return disjoint parts of `spans` by the label of the nearest sample inside the same span.

        Parts without a near sample get the label (`cause`, ""). Dispatching is the thread's own work in any
        sampled state, so samples only add lines to it.
        """
        within = np.searchsorted(spans.starts, self.times, "right") - 1
        ends = np.append(spans.ends, np.iinfo(np.int64).min)  # index -1: times before all spans
        inside = self.times < ends[within]
        times, label = self.times[inside], self.label[inside]
        if not len(times):
            return [((cause, ""), spans)]
        cells = _cells(times, self.reach_ns)
        cell, _, parts = overlaps(cells, spans)
        owner = label[cell]
        split: dict[Label, list[Spans]] = {}
        for code in np.unique(owner).tolist():
            mine = owner == code
            split.setdefault(self._of(code, cause), []).append(Spans(parts.starts[mine], parts.ends[mine]))
        rest = subtract(spans, union(parts.starts, parts.ends))
        if len(rest.starts):
            split.setdefault((cause, ""), []).append(rest)
        return [(key, _joined(sets)) for key, sets in split.items()]

    def _of(self, code: int, cause: str) -> Label:
        sampled, detail = self.labels[code]
        if cause != DISPATCHING:
            return sampled, detail
        return (cause, detail) if sampled == PYTHON else (cause, "")


def _cells(times: Array, reach: int) -> Spans:
    """Return the interval around each of `times` in which it is the nearest one, up to `reach` away."""
    middle = (times[1:] + times[:-1] + 1) // 2
    starts = np.maximum(np.concatenate(([times[0] - reach], middle)), times - reach)
    ends = np.minimum(np.concatenate((middle, [times[-1] + reach])), times + reach)
    return Spans(starts, ends)


def _joined(sets: list[Spans]) -> Spans:
    return union(np.concatenate([part.starts for part in sets]), np.concatenate([part.ends for part in sets]))


def samples_of(stacks: pl.DataFrame, setting: Setting) -> Samples | None:
    """Return the samples of the thread with the most, from one burst's rows of `stacks`; None if empty."""
    if stacks.is_empty():
        return None
    thread = int(stacks["thread"].mode().min())  # type: ignore[arg-type]
    mine = stacks.filter(thread=thread).unique("time_ns", keep="first").sort("time_ns")
    names = ["running", "call", "function", "source", "stack"]
    different = mine.select(names).unique(maintain_order=True)
    labels: dict[Label, int] = {}
    codes = [labels.setdefault(label(*row, setting=setting), len(labels)) for row in different.iter_rows()]
    known = different.with_columns(code=pl.Series(codes, dtype=pl.Int64))
    joined = mine.join(known, on=names, how="left", nulls_equal=True, maintain_order="left")
    return Samples(thread, mine["time_ns"].to_numpy(), joined["code"].to_numpy(), list(labels))


def label(
    running: bool | None,
    call: str | None,
    function: str | None,
    source: str | None,
    stack: str | None,
    *,
    setting: Setting,
) -> Label:
    """Return the cause and detail of one sample, from a row of the table `stacks`."""
    stack, place = stack or "", where(function, source)
    if _of_fathom(stack):
        return Entry.OWN_HOOKS.cause, ""
    if running is not False or (setting.engine and _BACKWARD.search(stack)):
        return PYTHON, place
    if _LOADER.search(stack):
        return INPUT, ""
    if _DISTRIBUTED.search(stack) or (setting.several_ranks and _BACKWARD.search(stack)):
        return PEERS, ""
    if _waits_for_requests(call or "", stack):
        return NO_WORK, place
    if _QUEUE.search(stack):
        return (INPUT, "queue.get") if setting.training else (NO_WORK, place)
    return BLOCKED, f"{call or 'blocked'} in {place}"


def _waits_for_requests(call: str, stack: str) -> bool:
    if _OTHER_PROCESS.search(stack):
        return False
    return bool(_ACCEPTS.match(call) or (_LISTENS.match(call) and _SERVER.search(stack)))


def _of_fathom(stack: str) -> bool:
    """Return whether Fathom's code runs: as the innermost frame, or as the caller of the standard library."""
    for frame in reversed(stack.split(";")):
        file = frame.rpartition(" (")[2]
        if _PROBE.search(file):
            return True
        if not _STANDARD.search(file):
            return False
    return False


def where(function: str | None, source: str | None) -> str:
    """`function (file:line)`, with the file's name only."""
    return f"{function or '?'} ({(source or '?').rpartition('/')[2]})"


def few_lines(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the small lines of each entry in one row; `rows` has window, entry, detail, ns and count."""
    lines = pl.col("entry").is_in(list(LINES)) & (pl.col("detail") != "")
    if rows.filter(lines).is_empty():
        return rows
    total = rows.filter(lines).group_by("entry", "detail").agg(all_ns=pl.col("ns").sum())
    total = total.with_columns(
        rank=pl.col("all_ns").rank("ordinal", descending=True).over("entry"),
        share=pl.col("all_ns") / pl.col("all_ns").sum().over("entry"),
    )
    large = total.filter(pl.col("rank") <= MOST_LINES, pl.col("share") >= LEAST_SHARE)
    keep = large.select("entry", "detail", kept=pl.lit(True))
    marked = rows.join(keep, on=["entry", "detail"], how="left", maintain_order="left")
    small = lines & pl.col("kept").is_null()
    renamed = marked.with_columns(detail=pl.when(small).then(pl.lit(OTHER_LINES)).otherwise("detail"))
    counted = pl.when(pl.col("count").count() > 0).then(pl.col("count").sum())
    grouped = renamed.group_by("window", "entry", "detail", maintain_order=True)
    return grouped.agg(pl.col("ns").sum(), counted.alias("count")).select(rows.columns)
