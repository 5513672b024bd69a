"""The clean step's ledger, from a profiled one that is much longer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fathom.analysis.clean import BEYOND, Profiled, clean_entries, in_all_ranks, typical
from fathom.analysis.entries import DISTORTED, Entry
from fathom.analysis.processor import nested_in
from fathom.analysis.results import LedgerRow
from fathom.analysis.steps import MOST_RANKS, lengths_of_ranks
from fathom.analysis.windows import Windows
from fathom.sounding.schema import conform

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


@pytest.mark.parametrize("work", [Entry.OPS, Entry.COMPUTE])
def test_collectives_of_host_threads_shrink_as_ops_do_and_those_of_devices_not_at_all(work: Entry) -> None:
    """Ops take 30 ms and collectives 60, so all of them have a third less in a clean step of 60 ms."""
    rows = {(work, "aten::mm"): 30.0, (Entry.MOVING_BYTES, ""): 50.0, (Entry.HOST_WAITS_FOR_PEERS, ""): 10.0}
    entries = [LedgerRow(entry, detail, ms) for (entry, detail), ms in rows.items()]
    clean = clean_entries(Profiled(entries, rows, dict.fromkeys(rows, 0.0)), {}, 60.0)
    ms = {row.entry: row.ms for row in clean}
    if work == Entry.OPS:
        assert [ms[entry] for entry, _ in rows] == pytest.approx([20.0, 100 / 3, 20 / 3])
    else:
        assert ms[Entry.MOVING_BYTES] == 50.0


class Job:
    """Steps of each rank, by their lengths in ms."""

    def __init__(self, *lengths_ms: list[float]) -> None:
        self.ranks = list(range(len(lengths_ms)))
        self._lengths = lengths_ms

    def table(self, name: str, rank: int) -> pl.LazyFrame:
        ends = np.cumsum(self._lengths[rank]) * 1e6
        columns = {
            "step": range(len(ends)),
            "mark_ns": np.concatenate([[0], ends[:-1]]).astype(np.int64),
            "end_ns": ends.astype(np.int64),
            "phase": ["timeline"] * len(ends),
        }
        return conform(name, pl.DataFrame(columns)).lazy()


def test_all_ranks_choose_the_same_usual_steps_though_their_lengths_differ():
    """Rank 0 is late in the second step, and rank 1 passes that on to its third."""
    first, second = [10.0, 18.0, 10.0, 40.0, 11.0], [10.0, 10.0, 18.0, 40.0, 11.0]
    means = lengths_of_ranks(Job(first, second))
    steps = np.arange(5)
    alone = [typical(np.array(each) * 1e6) for each in (first, second)]
    assert (alone[0] != alone[1]).any()
    chosen = [typical(in_all_ranks(means, steps, np.array(each) * 1e6)) for each in (first, second)]
    assert (chosen[0] == chosen[1]).all() and not chosen[0][3]


def test_a_rank_alone_and_steps_that_others_lack_keep_their_lengths():
    assert lengths_of_ranks(Job([10.0, 20.0])) == {}
    assert lengths_of_ranks(Job(*([[10.0]] * (MOST_RANKS + 1)))) == {}
    means = lengths_of_ranks(Job([10.0, 20.0], [10.0]))
    assert means == {0: 10e6}
    own = np.array([10e6, 20e6])
    assert in_all_ranks(means, np.arange(2), own) is own


def test_recording_lengthens_the_caller_of_an_op_and_not_the_op() -> None:
    """Each of 300 ops calls 1, whose own time the profiler does not lengthen."""
    ms = {(Entry.OPS, "aten::relu_"): 0.2, (Entry.OPS, "aten::clamp_min_"): 0.7, (Entry.PYTHON, ""): 1.4}
    entries = [LedgerRow(entry, detail, value) for (entry, detail), value in ms.items()]
    added = {
        (Entry.OPS, "aten::relu_"): 300.0,
        (Entry.OPS, "aten::clamp_min_"): 0.0,
        (Entry.PYTHON, ""): 300.0,
    }
    rows = clean_entries(Profiled(entries, ms, dict.fromkeys(ms, 300.0), added), {}, 2.0)
    clean = {row.detail: row.ms for row in rows}
    assert clean["aten::clamp_min_"] == 0.7
    assert clean["aten::relu_"] < 0.2 and clean[""] < 1.4


def test_a_nested_op_counts_for_its_caller_in_the_window_in_which_it_begins() -> None:
    columns = {"burst": [0, 0, 0, 0], "id": [1, 2, 3, 4], "parent": [None, 1, 2, None]}
    times = {"start_ns": [0, 2, 12, 14], "name": ["aten::linear", "aten::addmm", "aten::copy_", "aten::mm"]}
    ops = pl.DataFrame({**columns, **times, "kind": ["op"] * 4})
    starts, ends, zeros = np.array([0, 10]), np.array([10, 20]), np.zeros(2, np.int64)
    windows = Windows(starts, ends, zeros, zeros, ["", ""], None, zeros, zeros)
    rows = nested_in(ops, windows).sort("window").rows(named=True)
    assert rows == [{"caller": "aten::linear", "window": 0}, {"caller": "aten::addmm", "window": 1}]
