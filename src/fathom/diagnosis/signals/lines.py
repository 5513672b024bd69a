"""Lines of the program, by sampled stacks: of host time in the ledger, of waits, and of the loader."""

from __future__ import annotations

from math import log1p

import polars as pl

from fathom.analysis import LINES, OTHER_LINES, where
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import FetchingCode, HostLine
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_US

NO_STACKS = "no stacks of the host were sampled"
ENOUGH_LOOKS, LEAST_LOOKS = 6, 3  # at a line, else at its function
ALONE = 0.7  # share of time on a core: on a busier host, a thread may stand still for lack of a core
MOST = 0.99  # of looks that saw it elsewhere: the dwell time of the quickest code is unknown

LEAST_IN_WAIT = 2  # samples: a single one may belong to the time before the wait
LOADER = "/torch/utils/data/"
LEAST_OF_LOADER = 5  # samples: fewer show no share
_FRAMES = pl.col("stack").str.split(";")
_NUMBER = r":\d+$"  # of a line, at the end of a source

# Autograd's anomaly detection stores the stack of each op of the forward pass as text.
STORING = "format_stack ("

# A function that writes a model's state, in a stack.
SAVING = r"(^|[;.])_?(atomic_)?save(_(checkpoint|state|state_dict|model|pretrained|file))? \("

Place = tuple[str, str, float, float | None, float | None, float, str | None]  # the last fields of a HostLine


@signal("host.lines", "ms per step")
def lines(recorded: Recorded) -> list[HostLine]:
    """Return rows of the profiled ledger that name a line, longest first."""
    places = _places(_stacks(recorded))
    named = [
        HostLine(row.entry, row.detail, row.ms, *places[place])
        for row in recorded.ledger
        if row.entry in LINES and row.detail not in ("", OTHER_LINES)
        if (place := row.detail.rpartition(" in ")[2]) in places
    ]
    return sorted(named, key=lambda line: -line.ms)


def _places(stacks: pl.DataFrame) -> dict[str, Place]:
    """Return places by `function (file:line)`, their share of own code, and the time at one instruction."""
    own = pl.col("stack").str.ends_with(pl.format("{} ({})", "function", "source"))
    running = pl.col("running").fill_null(True)
    caller = _FRAMES.list.get(-2, null_on_oob=True).str.replace(r":\d+\)$", "").filter(own)
    shares = stacks.group_by("function", "source", maintain_order=True).agg(
        own=(own & running).sum() / running.sum(),
        saving=pl.col("stack").str.contains(SAVING).mean(),
        caller=pl.when(caller.n_unique() == 1).then(caller.first()),
        count=pl.len(),
    )
    by_line = _dwells(stacks, pl.col("source"), ENOUGH_LOOKS)
    by_function = _dwells(stacks, pl.col("source").str.replace(_NUMBER, ""), LEAST_LOOKS)
    return {
        where(function, source): (
            function,
            source,
            share or 0.0,
            by_line.get((function, source)),
            by_function.get((function, source.rpartition(":")[0])),
            saving,
            caller,
        )
        for function, source, share, saving, caller, _ in shares.sort("count").iter_rows()
    }


def _dwells(stacks: pl.DataFrame, place: pl.Expr, least: float) -> dict[tuple[str, str], float]:
    """Return the mean microseconds at one instruction, by function and place, if there are enough samples.

    If the kernel counted no time since the last look, because it does so only at ticks and switches, the host
    is as busy as it was then.
    """
    alone = pl.col("on_processor").forward_fill().fill_null(1.0) >= ALONE
    rows = stacks.sort("time_ns").filter(pl.col("moved").is_not_null(), alone).group_by("function", place)
    sums = rows.agg(pl.col("moved").sum(), looked=pl.len(), between=pl.col("apart_ns").mean())
    return {
        (function, source): dwell_us(moved, looked, between / NS_PER_US)
        for function, source, moved, looked, between in sums.iter_rows()
        if looked >= least
    }


def dwell_us(moved: int, looked: int, between_us: float) -> float:
    """Return the interpreter's time at one instruction, by how often it has moved on at a second look.

    A process that leaves at a constant rate has left with a probability of 1 - exp(-interval / dwell).
    """
    share = min((moved + 0.5) / (looked + 1), MOST)
    return -between_us / log1p(-share)


def _stacks(recorded: Recorded) -> pl.DataFrame:
    stacks = recorded.rows("stacks").filter(phase="timeline").collect()
    if stacks.is_empty():
        raise UnknownSignalError(NO_STACKS)
    return stacks


@signal("host.waiting_lines")
def waiting_lines(recorded: Recorded) -> dict[str, str]:
    """Return file:line by cause (`gc`, `checkpoint`, `input` …), with most samples during these waits.

    A loader without workers makes batches within the wait, so its line is in the dataset's code.
    """
    stacks = _stacks(recorded)
    waits = recorded.rows("waits").filter(phase="timeline").collect()
    by_cause = ((str(cause), line_in(stacks, rows)) for (cause,), rows in waits.group_by("cause"))
    return {cause: source for cause, source in by_cause if source}


def line_in(stacks: pl.DataFrame, waits: pl.DataFrame) -> str | None:
    """Return the most frequent line of the samples taken during the waits."""
    spans = waits.select("thread", "start_ns", "end_ns").sort("start_ns")
    samples = stacks.filter(pl.col("source").is_not_null()).sort("time_ns")
    inside = samples.join_asof(
        spans, left_on="time_ns", right_on="start_ns", by="thread", check_sortedness=False
    ).filter(pl.col("time_ns") < pl.col("end_ns"))
    return None if inside.height < LEAST_IN_WAIT else _usual_line(inside)


@signal("host.stored_stacks", "ms per step")
def stored_stacks(recorded: Recorded) -> float:
    """Return the time in which the launching thread stores its stack as text, by the share of its samples."""
    stacks = _stacks(recorded).filter(pl.col("thread").is_in(recorded.launching.implode()))
    storing = stacks.filter(pl.col("stack").str.contains(STORING, literal=True)).height
    return storing / max(stacks.height, 1) * recorded.per_step_ms(recorded.used.length)


@signal("input.code")
def code(recorded: Recorded) -> FetchingCode:
    """Return the program's line with most of the loader's time, and the share of the program's lines in it.

    Stacks of the thread that runs the steps show it if that thread loads.
    """
    return fetching(_stacks(recorded))


def fetching(stacks: pl.DataFrame) -> FetchingCode:
    """Return the code that makes batches, from the columns `function`, `source` and `stack`.

    With few samples, the share is unknown. Raises UnknownSignalError if there are none.
    """
    loading = stacks.filter(pl.col("stack").str.contains(LOADER, literal=True))
    if loading.is_empty():
        raise UnknownSignalError("no stack was sampled while batches were made")
    beneath = pl.col("stack").str.split(LOADER).list.last()
    own = loading.filter(beneath.str.contains(pl.format("{} ({})", "function", "source"), literal=True))
    share = own.height / loading.height if loading.height >= LEAST_OF_LOADER else None
    return FetchingCode(share, None if own.is_empty() else _usual_line(own))


def _usual_line(samples: pl.DataFrame) -> str:
    """Return the line with most samples in the function with most samples."""
    file = pl.col("source").str.replace(_NUMBER, "")
    counts = samples.with_columns(
        of_function=pl.len().over("function", file), of_line=pl.len().over("source")
    )
    return str(counts.sort("of_function", "of_line", "source", descending=True)["source"][0])
