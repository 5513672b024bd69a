"""Lines of the program that the ledger's host time belongs to, by sampled stacks."""

from __future__ import annotations

import polars as pl

from fathom.analysis.sampled import LINES, OTHER_LINES, where
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import HostLine
from fathom.diagnosis.signals.value import signal

NO_STACKS = "no stacks of the host were sampled"


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


def _places(stacks: pl.DataFrame) -> dict[str, tuple[str, str, float]]:
    """Function, source, and the share of samples in the program's own code, by `function (file:line)`."""
    own = pl.col("stack").str.ends_with(pl.format("{} ({})", "function", "source"))
    running = pl.col("running").fill_null(True)
    by_line = stacks.group_by("function", "source", maintain_order=True).agg(
        own=(own & running).sum() / running.sum(), count=pl.len()
    )
    return {
        where(function, source): (function, source, share or 0.0)
        for function, source, share, _ in by_line.sort("count").iter_rows()
    }
