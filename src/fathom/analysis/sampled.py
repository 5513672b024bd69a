"""Sampled stacks of the thread that runs the steps: where it spends time, and the calls that block it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.columns import distinct
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import NOTHING, Array, Spans, containing, intersect, overlaps, subtract, union
from fathom.analysis.making import Making

Label = tuple[str, str]  # cause, detail

PYTHON, DISPATCHING, BLOCKED = Entry.PYTHON.cause, Entry.DISPATCHING.cause, Entry.BLOCKED.cause
HOOKS = Entry.OWN_HOOKS.cause
NO_WORK, INPUT, PEERS = Entry.NO_WORK.cause, Entry.INPUT.cause, Entry.HOST_WAITS_FOR_PEERS.cause
LINES = (Entry.PYTHON, Entry.DISPATCHING, Entry.BLOCKED)  # entries whose details are lines
QUEUE_GET = "queue.get"
MOST_LINES, OTHER_LINES = 8, "other lines"
CALL_IN = " in "  # between a system call and its line
LEAST_SAMPLES = 3  # of a line: fewer do not give the time that it takes
LEAST_SHARE = 0.02  # of its entry's time: smaller lines are summed
# Time gets the line of the nearest sample within the larger of these two distances.
REACH_NS = 20_000_000
REACH = 4  # times the median interval between samples, which grows on a busy machine
HOOK_NS = 50_000  # around a sample in one of Fathom's hooks, which are brief; it says nothing about the rest

NO_MARKS = np.zeros(0, np.int64)

_PROBE = re.compile(r"/fathom/probe/(?!inject)")
_WRAPPED = re.compile(r"/fathom/probe/hooks/(patches|reading|stages)\.py:\d+\)$")  # it calls native code
_STANDARD = re.compile(r"/lib(64)?/python3[^/]*/(?!site-packages|dist-packages)|^<frozen")
_LOADER = re.compile(r"/torch/utils/data/")
_DISTRIBUTED = re.compile(r"/torch/distributed/")
_BACKWARD = re.compile(r"_engine_run_backward \(")
_IN_ENGINE = re.compile(r"(^|;)_engine_run_backward \([^;]*\)$")  # no Python function of the program runs
_ACCEPTS = re.compile(r"^(accept4?|epoll_wait|epoll_pwait2?)$")
_LISTENS = re.compile(r"^(select|pselect6|p?poll)$")
_SERVER = re.compile(r"/(selectors|socketserver|asyncio/\w+|http/server)\.py:")
_OTHER_PROCESS = re.compile(r"/(multiprocessing/\w+|concurrent/futures/process|subprocess)\.py:")
_READS = re.compile(r"^(p?readv?|pread64|preadv|openat?|newfstatat|statx?|lseek|getdents64|page fault)$")
_LOCK = "futex"
_OF_OPS = re.compile(r"^(futex|page fault|mmap|munmap|madvise|sched_yield|)$")
_QUEUE = re.compile(
    r"(^|;)Queue\.get \([^;]*/queue\.py:|;_worker \([^;]*/concurrent/futures/thread\.py:\d+\)$"
)


class Setting(msgspec.Struct, frozen=True):
    """Facts that decide between causes.

    `engine` is True if autograd's engine has threads (with devices), and `in_ops` if samples may be in ops,
    whose threads wait for each other.
    """

    training: bool = False
    several_ranks: bool = False
    engine: bool = False
    in_ops: bool = False


class Samples(msgspec.Struct, frozen=True):
    """Samples of one thread in time order; `label` indexes `labels`."""

    thread: int
    times: Array
    label: Array
    labels: list[Label]
    making: list[tuple[Label, Spans]] = msgspec.field(default_factory=list)  # between samples in one iterator
    communicating: Spans = NOTHING  # time with a collective of host threads in flight

    @property
    def reach_ns(self) -> int:
        """Largest distance in ns from a sample to the time that it labels."""
        usual = int(np.median(np.diff(self.times))) if len(self.times) > 1 else 0
        return max(REACH_NS, REACH * usual)

    def split(self, spans: Spans, cause: str, lines: bool = True) -> list[tuple[Label, Spans]]:
        """Return disjoint parts of `spans` by the label of the nearest sample inside the same span.

        Parts without a near sample get the label (`cause`, ""). Time between two samples in an iterator that
        makes batches belongs to it. Dispatching is otherwise the thread's own work in any sampled state, so
        samples only add lines to it, if `lines`. Samples beside collectives of host threads label no time
        without one, and the reverse: a thread waits for peers only while a collective is in flight.
        """
        if cause == DISPATCHING:
            made, rest = self._made(spans)
            return [*made, *(self._nearest(rest, cause) if lines else [((cause, ""), rest)])]
        beside, alone = intersect(spans, self.communicating), subtract(spans, self.communicating)
        split = _by_label([*self._nearest(beside, cause), *self._nearest(alone, cause)])
        made, rest = self._made(split.get((cause, ""), NOTHING))
        if made:
            split[cause, ""] = rest
            split = _by_label([*split.items(), *made])
        return list(split.items())

    def _made(self, spans: Spans) -> tuple[list[tuple[Label, Spans]], Spans]:
        """Return the parts of `spans` in which an iterator makes batches, and the rest."""
        parts = [(label, intersect(spans, times)) for label, times in self.making]
        parts = [(label, part) for label, part in parts if len(part.starts)]
        return parts, subtract(spans, _joined([part for _, part in parts])) if parts else spans

    def _nearest(self, spans: Spans, cause: str) -> list[tuple[Label, Spans]]:
        """Return disjoint parts of `spans` by the nearest sample inside them; others are (`cause`, "")."""
        within = containing(spans, self.times)
        inside = within >= 0
        times, label = self.times[inside], self.label[inside]
        of_fathom = np.array([known[0] == HOOKS for known in self.labels], bool)[label]
        split: dict[Label, list[Spans]] = {}
        if of_fathom.any():
            hooks = intersect(spans, _running(times, within[inside], of_fathom))
            split[self._of((HOOKS, ""), cause)], spans = [hooks], subtract(spans, hooks)
            times, label = times[~of_fathom], label[~of_fathom]
        cells = _cells(times, self.reach_ns)
        cell, _, parts = overlaps(cells, spans)
        owner = label[cell]
        for code in distinct(owner).tolist():
            mine = owner == code
            split.setdefault(self._of(self.labels[code], cause), []).append(
                Spans(parts.starts[mine], parts.ends[mine])
            )
        rest = subtract(spans, union(parts.starts, parts.ends))
        if len(rest.starts):
            split.setdefault((cause, ""), []).append(rest)
        return [(key, _joined(sets)) for key, sets in split.items()]

    @staticmethod
    def _of(sample: Label, cause: str) -> Label:
        sampled, detail = sample
        if cause != DISPATCHING:
            return sampled, detail
        return (cause, detail) if sampled in (PYTHON, DISPATCHING) else (cause, "")


def _running(times: Array, span: Array, hook: Array) -> Spans:
    """Return the time around each sample in a hook, and between neighbours in hooks in the same span."""
    both = hook[:-1] & hook[1:] & (span[:-1] == span[1:])
    starts = np.concatenate((times[hook] - HOOK_NS, times[:-1][both]))
    return union(starts, np.concatenate((times[hook] + HOOK_NS, times[1:][both])))


def _cells(times: Array, reach: int) -> Spans:
    """Return the interval around each of `times` in which it is the nearest one, up to `reach` away."""
    if not len(times):
        return NOTHING
    middle = (times[1:] + times[:-1] + 1) // 2
    starts = np.maximum(np.concatenate(([times[0] - reach], middle)), times - reach)
    ends = np.minimum(np.concatenate((middle, [times[-1] + reach])), times + reach)
    return Spans(starts, ends)


def _by_label(labelled: list[tuple[Label, Spans]]) -> dict[Label, Spans]:
    sets: dict[Label, list[Spans]] = {}
    for label, part in labelled:
        sets.setdefault(label, []).append(part)
    return {label: _joined(parts) for label, parts in sets.items()}


def _joined(sets: list[Spans]) -> Spans:
    return union(np.concatenate([part.starts for part in sets]), np.concatenate([part.ends for part in sets]))


def makes_batches(label: Label) -> bool:
    """Return whether a cause and detail say that an iterator makes batches in the sampled thread."""
    cause, detail = label
    return cause == INPUT and (detail == OTHER_LINES or detail.endswith(")"))


def samples_of(
    stacks: pl.DataFrame,
    setting: Setting,
    made: Mapping[str, Making] | None = None,
    marks: Array | None = None,
    rare: Collection[str] = (),
    communicating: Spans = NOTHING,
) -> Samples | None:
    """Return the samples of the thread with the most, from one burst's rows of `stacks`; None if empty.

    `made` has the iterators that make batches, by stack, and `marks` the bounds of steps. Samples in the
    lines `rare` keep their cause, without the line. Host threads run collectives in `communicating`.
    """
    if stacks.is_empty():
        return None
    thread = int(stacks["thread"].mode().min())  # type: ignore[arg-type]
    mine = stacks.filter(thread=thread).unique("time_ns", keep="first").sort("time_ns")
    beside = containing(communicating, mine["time_ns"].to_numpy()) >= 0
    mine = mine.with_columns(beside=pl.Series(beside, dtype=pl.Boolean))
    names = ["running", "call", "function", "source", "stack", "beside"]
    different = mine.select(names).unique(maintain_order=True)
    labels: dict[Label, int] = {}
    made = made or {}
    each = (
        label(*row, setting=setting, making=made.get(row[4] or ""), beside=beside)
        for *row, beside in different.iter_rows()
    )
    each = ((cause, "" if detail.rpartition(CALL_IN)[2] in rare else detail) for cause, detail in each)
    codes = [labels.setdefault(own, len(labels)) for own in each]
    known = different.with_columns(code=pl.Series(codes, dtype=pl.Int64))
    joined = mine.join(known, on=names, how="left", nulls_equal=True, maintain_order="left")
    samples = Samples(thread, mine["time_ns"].to_numpy(), joined["code"].to_numpy(), list(labels))
    making = _between(samples, NO_MARKS if marks is None else marks)
    return msgspec.structs.replace(samples, making=making, communicating=communicating)


def _between(samples: Samples, marks: Array) -> list[tuple[Label, Spans]]:
    """Return the time between neighbouring samples that both make batches, without a step's bound between."""
    makes = np.array([makes_batches(label) for label in samples.labels], bool)[samples.label]
    starts, ends = samples.times[:-1], samples.times[1:]
    steps = np.sort(marks)
    same = np.searchsorted(steps, starts) == np.searchsorted(steps, ends)
    near = makes[:-1] & makes[1:] & same & (ends - starts <= samples.reach_ns)
    codes = samples.label[:-1]
    return [
        (samples.labels[code], Spans(starts[mine], ends[mine]))
        for code in distinct(codes[near]).tolist()
        for mine in [near & (codes == code)]
    ]


def label(
    running: bool | None,
    call: str | None,
    function: str | None,
    source: str | None,
    stack: str | None,
    *,
    setting: Setting,
    making: Making | None = None,
    beside: bool = False,
) -> Label:
    """Return the cause and detail of one sample, from a row of `stacks`.

    `making`: it makes a batch there. `beside`: host threads ran a collective then, so a thread that waits in
    native code called by the program waits for it: `work.wait()` has no frame of torch.distributed.
    """
    stack, place = stack or "", where(function, source)
    standard = _STANDARD.search(stack.rpartition(" (")[2])
    if setting.in_ops and _OF_OPS.search(call or "") and not standard:
        running = True
    if _of_fathom(stack) and not (making and _WRAPPED.search(stack)):
        return HOOKS, ""
    queued = bool(_QUEUE.search(stack))
    if making and not queued and (running is not False or setting.training or _READS.match(call or "")):
        return (PEERS, "") if _DISTRIBUTED.search(stack) else (INPUT, making.detail)
    if running is not False and not setting.engine and _IN_ENGINE.search(stack):
        return DISPATCHING, place
    if running is not False or (setting.engine and _BACKWARD.search(stack)):
        return PYTHON, place
    if _LOADER.search(stack):
        return INPUT, ""
    if _DISTRIBUTED.search(stack) or (setting.several_ranks and _BACKWARD.search(stack)):
        return PEERS, ""
    if beside and call == _LOCK and not standard:
        return PEERS, ""
    if _waits_for_requests(call or "", stack):
        return NO_WORK, place
    if queued:
        return (INPUT, QUEUE_GET) if setting.training else (NO_WORK, place)
    return BLOCKED, f"{call or 'blocked'}{CALL_IN}{place}"


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


def rare_lines(stacks: pl.DataFrame) -> set[str]:
    """Return the lines (`where`) of a recording that have too few samples to give their time."""
    lines = stacks.group_by("function", "source").len()
    counts: Counter[str] = Counter()
    for function, source, count in lines.iter_rows():
        counts[where(function, source)] += count
    return {line for line, count in counts.items() if count < LEAST_SAMPLES}


def few_lines(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the small lines of each entry in one row; `rows` has window, entry, detail, ns and count."""
    making = (pl.col("entry") == Entry.INPUT) & pl.col("detail").str.ends_with(")")
    lines = (pl.col("entry").is_in(list(LINES)) & (pl.col("detail") != "")) | making
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
