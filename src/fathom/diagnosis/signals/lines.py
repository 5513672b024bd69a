"""Lines of the program that the ledger's host time belongs to, by sampled stacks."""

from __future__ import annotations

from math import log1p

import polars as pl

from fathom.analysis import LINES, OTHER_LINES, where
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import HostLine
from fathom.diagnosis.signals.value import signal

NO_STACKS = "no stacks of the host were sampled"
ENOUGH_LOOKS, LEAST_LOOKS = 6, 3  # at a line, else at its function
ALONE = 0.7  # of its time on a processor: on a busier host a thread that stays where it is may have none
MOST = 0.99  # of looks that saw it elsewhere: the dwell time of the quickest code is unknown
NS_PER_US = 1e3

# A function that writes a model's state, in a stack.
SAVING = r"(^|[;.])_?(atomic_)?save(_(checkpoint|state|state_dict|model|pretrained|file))? \("

Place = tuple[str, str, float, float | None, float | None, float]  # the last fields of a HostLine


@signal("host.lines", "ms a step")
def lines(recorded: Recorded) -> list[HostLine]:
    """Rows of the ledger that name a line, longest first."""
    stacks = recorded.store.table("stacks", recorded.account.rank).filter(phase="timeline").collect()
    if stacks.is_empty():
        raise UnknownSignalError(NO_STACKS)
    places = _places(stacks)
    named = [
        HostLine(row.entry, row.detail, row.ms, *places[place])
        for row in recorded.device.ledger
        if row.entry in LINES and row.detail not in ("", OTHER_LINES)
        if (place := row.detail.rpartition(" in ")[2]) in places
    ]
    return sorted(named, key=lambda line: -line.ms)


def _places(stacks: pl.DataFrame) -> dict[str, Place]:
    """By `function (file:line)`: the place, whose code runs there, and how long at one instruction."""
    own = pl.col("stack").str.ends_with(pl.format("{} ({})", "function", "source"))
    running = pl.col("running").fill_null(True)
    shares = stacks.group_by("function", "source", maintain_order=True).agg(
        own=(own & running).sum() / running.sum(),
        saving=pl.col("stack").str.contains(SAVING).mean(),
        count=pl.len(),
    )
    by_line = _dwells(stacks, pl.col("source"), ENOUGH_LOOKS)
    by_function = _dwells(stacks, pl.col("source").str.replace(r":\d+$", ""), LEAST_LOOKS)
    return {
        where(function, source): (
            function,
            source,
            share or 0.0,
            by_line.get((function, source)),
            by_function.get((function, source.rpartition(":")[0])),
            saving,
        )
        for function, source, share, saving, _ in shares.sort("count").iter_rows()
    }


def _dwells(stacks: pl.DataFrame, place: pl.Expr, least: float) -> dict[tuple[str, str], float]:
    """Mean microseconds at one instruction, by function and place; without those of few looks."""
    alone = pl.col("on_processor").fill_null(1.0) >= ALONE
    rows = stacks.filter(pl.col("moved").is_not_null(), alone).group_by("function", place)
    sums = rows.agg(pl.col("moved").sum(), looked=pl.len(), between=pl.col("apart_ns").mean())
    return {
        (function, source): dwell_us(moved, looked, between / NS_PER_US)
        for function, source, moved, looked, between in sums.iter_rows()
        if looked >= least
    }


def dwell_us(moved: int, looked: int, between_us: float) -> float:
    """How long the interpreter stays at one instruction, from how often it was elsewhere at the second look.

    What leaves at a constant rate is seen to with a probability of 1 - exp(-apart / dwell).
    """
    share = min((moved + 0.5) / (looked + 1), MOST)
    return -between_us / log1p(-share)
