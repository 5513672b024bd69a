"""The clean step's ledger, from a profiled one that is much longer."""

from __future__ import annotations

import pytest

from fathom.analysis.clean import BEYOND, Profiled, clean_entries
from fathom.analysis.entries import DISTORTED, Entry
from fathom.analysis.results import LedgerRow

ROWS = {(Entry.OPS, "aten::mm"): 2.0, (Entry.PYTHON, "loop (a.py:3)"): 8.0, (Entry.INPUT, ""): 0.2}


def cleaned(step_ms: float) -> dict[tuple[str, str], float]:
    """Return the rows of a clean step whose profiled step takes 10.2 ms."""
    entries = [LedgerRow(entry, detail, ms) for (entry, detail), ms in ROWS.items()]
    rows = clean_entries(Profiled(entries, dict(ROWS), dict.fromkeys(ROWS, 1.0)), {"input": 0.1}, step_ms)
    return {(row.entry, row.detail): row.ms for row in rows}


def test_a_profiled_step_that_is_many_times_as_long_says_nothing_of_the_hosts_part():
    rows = cleaned(1.0)
    assert rows == pytest.approx({(Entry.INPUT, ""): 0.1, (Entry.UNATTRIBUTED, DISTORTED): 0.9})


def test_otherwise_the_excess_is_taken_off_the_hosts_rows():
    rows = cleaned(1.01 * 10.1 / BEYOND)
    entries = {entry for entry, _ in rows}
    assert entries >= {Entry.PYTHON, Entry.INPUT} and Entry.UNATTRIBUTED not in entries
    assert sum(rows.values()) == pytest.approx(1.01 * 10.1 / BEYOND, abs=1e-6)
