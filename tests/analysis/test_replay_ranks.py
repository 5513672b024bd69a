"""Changes to the waits between ranks, against a brute-force simulation of small jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.analysis.replay import Prediction, Replay, parse
from fathom.errors import BadInputError
from tests.support.timelines import Timeline, store_of

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LATENCY, RETURN = 5_000, 10_000
STEPS = 6


@dataclass(frozen=True)
class Job:
    """Host work before the launch, compute and transfer of each rank in ns, and the skew of its clock."""

    host: tuple[int, ...]
    compute: tuple[int, ...]
    transfer: int
    skew: tuple[int, ...]
    waiting: bool = True
    late: int | None = None  # the rank that nobody waits for

    @property
    def ranks(self) -> range:
        return range(len(self.host))

    def arrival_of_peers(self, rank: int, starts: Sequence[int]) -> int:
        """The time from which the bytes of `rank` move."""
        if not self.waiting:
            return starts[rank]
        return max(starts[other] for other in self.ranks if other in (rank,) or other != self.late)

    def lines(self) -> list[Timeline]:
        """In each step, a rank works, launches compute and an all-reduce, and waits for the device."""
        lines = [Timeline(rank=rank) for rank in self.ranks]
        now = [50_000_000 for _ in self.ranks]
        for _ in range(STEPS):
            launched = [now[rank] + self.host[rank] for rank in self.ranks]
            starts = [launched[rank] + LATENCY + self.compute[rank] for rank in self.ranks]
            for rank, line in enumerate(lines):
                skew, launch = self.skew[rank], launched[rank] + self.skew[rank]
                end = self.arrival_of_peers(rank, starts) + self.transfer + skew
                line.kernel(launch + LATENCY, starts[rank] + skew, launch)
                line.kernel(starts[rank] + skew, end, launch + 10, name=REDUCE, kind="collective")
                line.call("cudaDeviceSynchronize", launch + 20, end + RETURN)
                line.step(now[rank] + skew, end + RETURN)
                now[rank] = end + RETURN - skew
        return lines


def predicted(job: Job, change: str, rank: int = 0) -> Prediction:
    with TemporaryDirectory() as folder:
        store = store_of(Path(folder) / "s.fathom", *job.lines())
        for about in store.manifest.ranks:
            about.host = f"node-{about.rank}"  # clocks of several hosts are aligned
        return Replay(store, rank).predict([parse(change)])


def truth(job: Job, rank: int = 0) -> float:
    """The mean step of the job in ms, without the first one."""
    steps = [row["end_ns"] - row["mark_ns"] for row in job.lines()[rank].tables["steps"][1:]]
    return sum(steps) / len(steps) / 1e6


length = st.integers(50_000, 900_000)


@st.composite
def jobs(draw: Callable[[st.SearchStrategy[int]], int]) -> Job:
    count = draw(st.integers(2, 4))
    skewed = draw(st.sampled_from([0, 1]))
    host, compute = (tuple(draw(length) for _ in range(count)) for _ in range(2))
    skew = tuple(skewed * draw(st.integers(-3_000_000, 3_000_000)) for _ in range(count))
    return Job(host, compute, draw(st.integers(20_000, 300_000)), skew)


@settings(max_examples=6, deadline=None)
@given(jobs(), st.data())
def test_waits_for_one_rank_and_for_all_are_as_simulated(job: Job, data: st.DataObject) -> None:
    late = data.draw(st.sampled_from(job.ranks))
    for change, changed in {
        f"late:{late}=0": replace(job, late=late),
        "waiting=0": replace(job, waiting=False),
        "link=2": replace(job, transfer=job.transfer // 2),
    }.items():
        result = predicted(job, change)
        assert result.recorded_ms is not None and result.predicted_ms is not None, result.abstained
        # Before the first step all ranks are equally far.
        assert result.predicted_ms == pytest.approx(truth(changed), rel=0.01), change


@settings(max_examples=4, deadline=None)
@given(jobs())
def test_gains_stay_within_the_ledger(job: Job) -> None:
    """Without waits, a step is no shorter than its rank's work, and gains no more than it waited."""
    result = predicted(job, "waiting=0")
    assert result.gain_ms is not None and result.predicted_ms is not None
    waited = next((row.before_ms for row in result.moved if row.entry == "waiting for peers"), 0.0)
    assert -0.001 <= result.gain_ms <= waited + 0.001
    own = (job.host[0] + LATENCY + job.compute[0] + job.transfer) / 1e6
    assert result.predicted_ms >= own
    assert (predicted(job, "late:0=0").gain_ms or 0.0) <= result.gain_ms + 0.001


@pytest.mark.parametrize(
    ("change", "text"),
    [("late=0", "late:7=0"), ("late:x=0", "late:7=0"), ("late:1=0.5", "write late:1=0"),
     ("waiting=2", "write waiting=0"), ("waiting:a=0", "no name"),
     ("link=0", "link=2"), ("link=3us", "give a factor")],
)  # fmt: skip
def test_bad_changes_of_ranks_are_one_sentence(change: str, text: str) -> None:
    with pytest.raises(BadInputError, match=text):
        parse(change)


def test_an_unknown_rank_is_an_error() -> None:
    with pytest.raises(BadInputError, match="Rank 9 was not recorded"):
        predicted(Job((100_000,) * 2, (100_000,) * 2, 50_000, (0, 0)), "late:9=0")


def test_of_a_large_job_few_ranks_are_replayed(tmp_path: Path) -> None:
    """Ranks that are left out keep their lateness, so the second-latest rank still counts."""
    host = (100_000, *(200_000 + 1_000 * rank for rank in range(17)), 900_000)
    job = Job(host, (100_000,) * 19, 50_000, (0,) * 19)
    replay = Replay(store_of(tmp_path / "s.fathom", *job.lines()), 0, late=[18])
    result = replay.predict([parse("late:18=0")])
    assert list(replay.model.timelines) == [0, 18]
    assert result.predicted_ms == pytest.approx(truth(replace(job, late=18)), rel=0.01)
    assert "17 ranks were not replayed" in result.notes[-1]
