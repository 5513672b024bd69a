"""Large jobs: analysing each rank alone gives the same results as analysing all ranks in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from fathom.analysis import many_ranks, memory_of
from fathom.analysis.communication import jitter_of
from fathom.analysis.many_ranks import Chunk, Spread, accounts_of
from fathom.analysis.results import Examination
from fathom.api import Sounding
from fathom.diagnosis import examine
from fathom.errors import BadInputError, FathomError
from fathom.report.communication import straggler
from fathom.sounding import Store, store
from tests.support.timelines import Timeline, store_of

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP, STEPS, LATE = 1_000_000, 6, 300_000


def rank(number: int, late: bool, skew: int) -> Timeline:
    """Steps with compute, which a late rank starts after a wait for input, and an all-reduce."""
    line = Timeline(rank=number)
    for k in range(STEPS):
        begin = k * STEP + skew + 10_000_000
        line.step(begin, begin + STEP)
        begins = begin + (LATE if late else 0) + 1_000
        if late:
            line.wait("input", begin + 500, begins)
        line.kernel(begins + 100, begins + 100_000, begins)
        line.kernel(begins + 101_000 + number, begin + 600_000, begins + 200, name=REDUCE, kind="collective")
        line.kernel(begin + 610_000, begin + 990_000, begin + 605_000)
    return line


def job(folder: Path, ranks: int, late: int) -> Store:
    """A job whose rank `late` waits for its input, with two hosts whose clocks differ by 3 ms."""
    lines = [rank(number, number == late, 3_000_000 * (number % 2)) for number in range(ranks)]
    return store_of(folder / "job.fathom", *lines)


def results(examination: Examination) -> dict[str, object]:
    return msgspec.to_builtins(examination)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return job(tmp_path_factory.mktemp("large"), 20, 13)


@pytest.fixture(scope="module")
def alone(large: Store) -> Examination:
    """The examination of each rank alone."""
    seen: list[tuple[int, int]] = []
    result = examine(large, spread=Spread(progress=lambda done, of: seen.append((done, of))))
    assert seen[-1] == (20, 20) and len(seen) > 1
    return result


def test_ranks_analysed_alone_give_the_same_results(
    large: Store, alone: Examination, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (many_ranks, store):
        monkeypatch.setattr(module, "MOST_CACHED", 100)
    combined = examine(large)
    assert combined.critical_path and not alone.critical_path  # it needs the timelines of all ranks at once
    assert results(alone) == results(msgspec.structs.replace(combined, critical_path=[]))


def test_the_straggler_of_a_large_job_is_named_with_its_cause(alone: Examination) -> None:
    worst = alone.late[0]
    assert (worst.rank, worst.steps, worst.of_steps) == (13, STEPS, STEPS)
    assert worst.cost_ms == pytest.approx(LATE / 1e6, rel=0.01)
    assert worst.entries[0].entry == "idle: input"
    assert worst.entries[0].ms == pytest.approx(LATE / 1e6, rel=0.01)
    assert straggler(alone).startswith("Rank 13 is late: all others wait 300 µs per step for it (30 %)")


def test_without_waits_the_step_of_a_rank_that_waits_is_predicted(tmp_path: Path) -> None:
    sounding = Sounding(job(tmp_path, 3, 0))
    for change in ("waiting=0", "late:0=0"):
        prediction = sounding.what_if(change)
        assert prediction.rank != 0
        waits = next(row for row in prediction.moved if row.entry == "waiting for peers")
        assert waits.before_ms == pytest.approx(LATE / 1e6, rel=0.02) and waits.after_ms < 0.01
    assert sounding.what_if("link=2").rank == 0


def test_a_large_job_keeps_the_tables_of_few_ranks(large: Store) -> None:
    view = large.cached()
    for number in view.ranks:
        view.table("kernels", number).collect()
    assert len(view._tables) == store.FEW_CACHED  # type: ignore[attr-defined]
    accounts = accounts_of(view, {}, {})
    assert [account.rank for account in accounts] == view.ranks
    assert [len(account.timeline.kernels) > 0 for account in accounts] == [True] + 19 * [False]


def test_an_error_in_a_process_is_the_error_of_the_analysis(tmp_path: Path) -> None:
    damaged = job(tmp_path, 18, 3)
    (damaged.path / "rank-17" / "kernels.parquet").write_bytes(b"no table")
    with pytest.raises(FathomError, match="rank-17"):
        accounts_of(damaged.cached(), {}, {})


def test_a_process_that_dies_is_reported(large: Store) -> None:
    worker = many_ranks._worker()
    worker.kill()
    worker.wait()
    with pytest.raises(FathomError, match="ranks 3 to 4 died"):
        many_ranks._asked(worker, Chunk(large.path, [3, 4], {}, {}, None))
    worker.communicate()


def test_without_ray_its_absence_is_the_error(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInputError, match="pip install ray"):
        accounts_of(large.cached(), {}, {}, spread=Spread(on="ray"))


def test_each_rank_has_a_summary(alone: Examination) -> None:
    assert [row.rank for row in alone.ranks] == list(range(20))
    late, other = alone.ranks[13], alone.ranks[4]
    assert (late.last, late.lost_in, other.last, other.lost_in) == (STEPS, "idle: input", 0, "")
    assert late.score > 0.95 > 0.05 > other.score
    assert other.waiting_ms - late.waiting_ms == pytest.approx(LATE / 1e6, rel=0.02)
    for row in alone.ranks:
        parts = row.compute_ms + row.communication_ms + row.copy_ms + row.idle_ms
        assert parts == pytest.approx(row.step_ms, rel=1e-6)


def test_ranks_and_jitter_are_tables(large: Store) -> None:
    sounding = Sounding(large)
    query = "SELECT rank, lost_in FROM ranks ORDER BY cost_ms DESC LIMIT 1"
    assert sounding.sql(query).rows() == [(13, "idle: input")]
    assert sounding.sql("SELECT rank, entries FROM late_ranks").row(0)[1].startswith("idle: input 0.3 ms")
    assert sounding.sql("SELECT operation, n FROM jitter").rows() == [("all_reduce", STEPS)]


def test_memory_is_compared_over_ranks() -> None:
    peaks = {"event": ["peak"] * 3, "rank": [0, 1, 2], "device": [0] * 3, "allocated": [100, 150, 100]}
    events = pl.DataFrame({**peaks, "reserved": [None, 200, 120]})
    telemetry = pl.DataFrame(schema={"device": pl.Int32, "memory_bytes": pl.Int64})
    memory = memory_of(events, telemetry, [0])
    assert memory is not None
    assert (memory.largest_on_rank, memory.imbalance_share) == (1, 0.5)
    alone = memory_of(events.filter(rank=1), telemetry, [0])
    assert alone is not None and alone.imbalance_share is None


def test_jitter_is_split_into_late_arrival_and_slow_transfer() -> None:
    """Rank 2 is 500 µs late in one step of ten; in another the transfer takes 300 µs longer."""
    rows = [
        {"burst": 0, "step": step, "name": "nccl", "place": 0, "cut": False, "operation": "all_reduce",
         "rank": rank, "start_ns": step * 10**7 + 1000 * rank + (500_000 if rank == 2 and step == 3 else 0),
         "end_ns": step * 10**7 + 100_000 + {3: 500_000, 6: 300_000}.get(step, 0)}
        for step in range(10) for rank in range(3)
    ]  # fmt: skip
    (row,) = jitter_of(pl.DataFrame(rows))
    assert (row.n, row.late_p50_ms, row.transfer_p50_ms) == (10, 0.001, 0.098)
    assert row.late_p99_ms == pytest.approx(np.quantile([0.001] * 9 + [0.501], 0.99))
    assert row.transfer_p99_ms == pytest.approx(np.quantile([0.098] * 9 + [0.398], 0.99))
    assert jitter_of(pl.DataFrame(rows).filter(pl.col("step") < 3)) == []
