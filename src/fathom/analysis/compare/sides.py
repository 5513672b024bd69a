"""The recordings of one side as one: its entries with their time in each run and each step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fathom.analysis.compare.launched import Launched
from fathom.analysis.compare.run import Run, RunEntry
from fathom.analysis.rows import RowKey, rounded_ns
from fathom.units import NS_PER_MS


class SideEntry(msgspec.Struct):
    """An entry on one side, or several aligned ones: its mean over runs in whole ns, and in each run.

    `each` has the ns in every recorded step of each run.
    """

    keys: list[RowKey]
    ns: int
    runs: list[float]
    each: list[list[int]]
    adjusted_ns: float = 0.0
    count: float | None = None
    launched: Launched = Launched()

    @property
    def entry(self) -> str:
        """The entry of the ledger."""
        return self.keys[0][0]

    @property
    def details(self) -> list[str]:
        """The details of the entry, the longest first."""
        return [detail for _, detail in self.keys]


def entries_of(runs: Sequence[Run], basis: str) -> list[SideEntry]:
    """Return the entries of a side, which sum to its mean step in whole ns, the longest first."""
    by_key: dict[RowKey, list[RunEntry | None]] = {}
    for place, run in enumerate(runs):
        for row in run.entries[basis]:
            by_key.setdefault((row.entry, row.detail), [None] * len(runs))[place] = row
    total = round(sum(run.step_ns(basis) for run in runs) / len(runs))
    means = [sum(row.ns for row in rows if row) / len(runs) / NS_PER_MS for rows in by_key.values()]
    entries = [
        _merged(key, ns, rows, runs)
        for (key, rows), ns in zip(by_key.items(), rounded_ns(means, total), strict=True)
    ]
    return sorted(entries, key=lambda entry: -entry.ns)


def _merged(key: RowKey, ns: int, rows: Sequence[RunEntry | None], runs: Sequence[Run]) -> SideEntry:
    known = [row for row in rows if row is not None]
    counts = [row.count for row in known if row.count is not None]
    steps = [len(run.windows_ms) for run in runs]
    recorded = any(row.each for row in known)
    each = [row.each if row and row.each else [0] * n for row, n in zip(rows, steps, strict=True) if recorded]
    return SideEntry(
        keys=[key],
        ns=ns,
        runs=[0.0 if row is None else float(row.ns) for row in rows],
        each=each,
        adjusted_ns=sum(row.adjusted_ns for row in known) / len(rows),
        count=sum(counts) / len(rows) if counts else None,
        launched=next((row.launched for row in known if row.launched.op), Launched()),
    )


def combined(entries: Sequence[SideEntry]) -> SideEntry:
    """Return the sum of entries, the longest of which gives its op and inputs."""
    if len(entries) == 1:
        return entries[0]
    counts = [entry.count for entry in entries if entry.count is not None]
    known = [entry.each for entry in entries if entry.each]
    named = [entry.launched for entry in entries if entry.launched.op]
    return SideEntry(
        keys=[key for entry in entries for key in entry.keys],
        ns=sum(entry.ns for entry in entries),
        runs=np.sum([entry.runs for entry in entries], axis=0).tolist(),
        each=[np.sum(steps, axis=0).tolist() for steps in zip(*known, strict=True)],
        adjusted_ns=sum(entry.adjusted_ns for entry in entries),
        count=sum(counts) if counts else None,
        launched=named[0] if named else Launched(),
    )


def ops_of(*sides: SideEntry | None) -> str:
    """Return the names of the ops that launch the kernels of either side: aten::bmm, aten::mm."""
    names = [name for side in sides if side for name in side.launched.ops.split(", ") if name]
    return ", ".join(dict.fromkeys(names))
