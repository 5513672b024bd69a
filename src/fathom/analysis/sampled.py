"""Sampled stacks of the thread that runs the steps: which line its time belongs to, and what blocked it."""

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
LEAST_SHARE = 0.02  # of its entry: a line with less is one of the others
REACH_NS = 20_000_000  # time further than this from every sample stays without a line, or than
REACH = 4  # times what usually lies between two samples, where a busy machine allows few

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
    """What decides between causes. `engine`: autograd's engine has threads of its own, as on a device."""

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
        """How far a sample speaks for the time around it."""
        usual = int(np.median(np.diff(self.times))) if len(self.times) > 1 else 0
        return max(REACH_NS, REACH * usual)

    def split(self, held: Spans, cause: str) -> list[tuple[Label, Spans]]:
        """Disjoint parts of the set `held` by the nearest sample that was taken inside it.

        Where none is near, the part is (`cause`, ""). `dispatching` is the thread's own work whatever a
        sample says of its state, so samples only name lines there.
        """
        within = np.searchsorted(held.starts, self.times, "right") - 1
        ends = np.append(held.ends, np.iinfo(np.int64).min)  # of the set, and for what lies before it
        inside = self.times < ends[within]
        times, label = self.times[inside], self.label[inside]
        if not len(times):
            return [((cause, ""), held)]
        cells = _cells(times, self.reach_ns)
        cell, _, parts = overlaps(cells, held)
        owner = label[cell]
        split: dict[Label, list[Spans]] = {}
        for code in np.unique(owner).tolist():
            mine = owner == code
            split.setdefault(self._of(code, cause), []).append(Spans(parts.starts[mine], parts.ends[mine]))
        rest = subtract(held, union(parts.starts, parts.ends))
        if len(rest.starts):
            split.setdefault((cause, ""), []).append(rest)
        return [(key, _together(sets)) for key, sets in split.items()]

    def _of(self, code: int, cause: str) -> Label:
        sampled, detail = self.labels[code]
        if cause != DISPATCHING:
            return sampled, detail
        return (cause, detail) if sampled == PYTHON else (cause, "")


def _cells(times: Array, reach: int) -> Spans:
    """What lies nearest to each instant, and not far from it."""
    middle = (times[1:] + times[:-1] + 1) // 2
    starts = np.maximum(np.concatenate(([times[0] - reach], middle)), times - reach)
    ends = np.minimum(np.concatenate((middle, [times[-1] + reach])), times + reach)
    return Spans(starts, ends)


def _together(sets: list[Spans]) -> Spans:
    return union(np.concatenate([one.starts for one in sets]), np.concatenate([one.ends for one in sets]))


def samples_of(stacks: pl.DataFrame, setting: Setting) -> Samples | None:
    """The samples of the thread that has most of them; None without any. `stacks` are rows of one burst."""
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
    """Cause and detail of one sample."""
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
    """Whether Fathom's own code runs: it, or what it called of the standard library, is innermost."""
    for frame in reversed(stack.split(";")):
        file = frame.rpartition(" (")[2]
        if _PROBE.search(file):
            return True
        if not _STANDARD.search(file):
            return False
    return False


def where(function: str | None, source: str | None) -> str:
    """`function (file:line)`, with the file's name alone."""
    return f"{function or '?'} ({(source or '?').rpartition('/')[2]})"


def few_lines(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of a ledger (window, entry, detail, ns, count) with the small lines of an entry in one row."""
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
