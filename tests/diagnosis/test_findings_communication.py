"""Findings about communication: on signals that must raise them, on others, and on real traces."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fathom.analysis.communication import LateRank, LostTime
from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.diagnosis import examine
from fathom.diagnosis.signals import Repeated, SmallMessages, UnknownSignalError
from fathom.sounding import import_traces
from tests.support.examined import SCRATCH, of_trace, on_trace
from tests.support.findings_fakes import (
    NCCL,
    account,
    collective,
    communication,
    compute,
    product,
    raised,
    signals,
)  # fmt: skip
from tests.support.paths import TRACES
from tests.support.timelines import Timeline, examination_of

shared = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")


KINDS = (
    "communication-exposed",
    "communication-straggler",
    "communication-straggler-input",
    "communication-small-messages",
    "communication-repeated-in-accumulation",
    "communication-wide-gradients",
)


def kinds(*ledger: LedgerRow, **known: Any) -> dict[str, Any]:
    """The candidates about communication, by kind; rules that lack a signal abstain."""
    result: dict[str, Any] = {}
    for kind in KINDS:
        with suppress(UnknownSignalError):
            result |= raised(signals(ledger, **known), kind)
    return result


def test_exposed_communication_is_reported_with_its_collectives() -> None:
    mine = kinds(
        compute("gemm", 60.0),
        communication(40.0),
        communication_account=account(60.0, collective(40.0, 50.0)),
    )
    candidate = mine["communication-exposed"]
    assert candidate.changes == ("communication=0",) and candidate.part == 1.0  # 50 ms of compute are free
    assert "all_reduce of 25 MB bf16" in candidate.evidence[0].text
    assert candidate.evidence[0].value == 40.0


def test_overlap_saves_no_more_than_the_compute_that_is_left() -> None:
    candidate = kinds(
        compute("gemm", 20.0), communication(80.0), communication_account=account(20.0, collective(80.0))
    )["communication-exposed"]
    assert candidate.part == pytest.approx(0.25)
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(20.0)


def test_hidden_communication_and_waiting_for_peers_are_not_exposed() -> None:
    hidden = account(97.0, collective(3.0, 90.0))
    assert not kinds(compute("gemm", 97.0), communication(3.0), communication_account=hidden)
    late = [compute("gemm", 60.0), communication(40.0, Entry.WAITING_FOR_PEERS)]
    assert not kinds(*late, communication_account=account(60.0, collective(40.0)))


WORST = LateRank(rank=3, last=9, of=10, operations={"all_reduce": 9}, behind_ms=2.0, cost_ms=15.0, score=0.9)
WAITING = [compute("gemm", 60.0), communication(40.0, Entry.WAITING_FOR_PEERS)]


def test_the_rank_that_is_always_last_is_a_straggler() -> None:
    excess = [LostTime("idle: input", 14.0), LostTime("compute", 1.0)]
    candidate = kinds(*WAITING, communication_late=[WORST], communication_excess=excess)[
        "communication-straggler-input"
    ]
    assert candidate.gain_ms == 14.0  # no more than the cause takes
    assert "rank 3" in candidate.evidence[0].text and "idle: input" in candidate.evidence[2].text


@pytest.mark.parametrize(
    ("last", "score", "cost"),
    [(4, 0.9, 15.0), (9, 0.4, 15.0), (9, 0.9, 1.0)],  # by turns; others cost as much; too little
)
def test_ranks_that_are_late_by_turns_or_a_little_are_no_stragglers(
    last: int, score: float, cost: float
) -> None:
    rank = LateRank(3, last, 10, {"all_reduce": last}, 2.0, cost, score)
    assert not kinds(*WAITING, communication_late=[rank])


@pytest.mark.parametrize(("steps", "named"), [(6, True), (2, False)])
def test_a_rank_late_at_the_first_collective_of_each_step_is_a_straggler(steps: int, named: bool) -> None:
    rank = LateRank(3, 6, 60, {"all_reduce": 6}, 2.0, 15.0, 0.9, steps=steps, of_steps=6)
    assert ("communication-straggler" in kinds(*WAITING, communication_late=[rank])) is named


def test_small_collectives_in_a_row_are_joined() -> None:
    small = SmallMessages("all_reduce", "fp32", 400e3, 100.0, 1.0, 10.0, 0.8, (NCCL,))
    rows = account(60.0, collective(10.0))
    candidate = kinds(
        compute("gemm", 60.0), communication(10.0), communication_small=[small], communication_account=rows
    )["communication-small-messages"]
    assert candidate.changes == (f'family:"{NCCL}"={1 - 99 * 0.08 / 10:.6f}',)
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(99 * 0.08)


def test_reductions_of_each_micro_step_are_repeated() -> None:
    again = Repeated("all_reduce", 25e6, 4, 4.0, 20.0, (NCCL,))
    rows = account(60.0, collective(20.0))
    candidate = kinds(
        compute("gemm", 60.0), communication(20.0), communication_repeated=[again], communication_account=rows
    )["communication-repeated-in-accumulation"]
    assert candidate.gain_ms == sum(claim.ms for claim in candidate.claims) == pytest.approx(15.0)
    assert not kinds(compute("gemm", 60.0), communication_repeated=[], communication_account=rows)


@pytest.mark.parametrize(
    ("dtype", "products", "wide"), [("fp32", "bf16", True), ("bf16", "bf16", False), ("fp32", "fp32", False)]
)
def test_float32_gradients_of_products_in_bfloat16_are_wide(dtype: str, products: str, wide: bool) -> None:
    mine = kinds(
        compute("gemm", 60.0),
        communication(20.0),
        communication_account=account(60.0, collective(20.0, dtype=dtype)),
        numbers_products=[product("gemm", 60.0, 4096, 4096, 4096, products)],
    )
    assert ("communication-wide-gradients" in mine) == wide


# hand-made timelines, whose events show the cause

REDUCE = "ncclDevKernel_AllReduce_Sum_bf16"


def reduced(timeline: Timeline, start: int, end: int, size: int, called: int) -> None:
    """An all-reduce of `size` bytes with the call that torch recorded."""
    op = timeline.op("record_param_comms", called, called + 40)
    values = f'["allreduce", "BFloat16", "{size // 2}", "{size // 2}", "2", "0", "default_pg", "[0, 1]"]'
    timeline.tables["ops"][op]["values"] = values
    timeline.kernel(start, end, None, name=REDUCE, kind="collective", correlation=start)
    times = {"start_ns": called + 10, "end_ns": called + 20}
    timeline.add("launches", api="cudaLaunchKernel", thread=100, correlation=start, op=op, **times)


def finding(examination: Any, kind: str) -> Any:
    return next((finding for finding in examination.findings if finding.id == kind), None)


def test_twelve_small_reductions_in_a_row_are_found(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.steps(0, 1_000_000, 2_000_000)
    for step in (0, 1_000_000):
        timeline.call("cudaDeviceSynchronize", step + 20_000, step + 999_000)
        timeline.kernel(step + 1000, step + 600_000, step + 500, correlation=step + 1)
        for k in range(12):
            begin = step + 601_000 + 33_000 * k
            reduced(timeline, begin, begin + 33_000, 4096, step + 10_000 + 100 * k)
    examination = examination_of(tmp_path / "s", timeline)
    (row,) = examination.devices[0].communication.collectives  # type: ignore[union-attr]
    assert (row.operation, row.bytes, row.dtype, row.count, row.group) == (
        "all_reduce",
        4096,
        "bf16",
        12,
        "default_pg",
    )
    small = finding(examination, "communication-small-messages")
    assert small.gain_ms == pytest.approx(11 * 0.033, rel=0.1)


def test_small_reductions_between_compute_are_not_joined(tmp_path: Path) -> None:
    """As tensor parallelism does in each layer: every one is needed before the next product."""
    timeline = Timeline()
    timeline.steps(0, 1_000_000, 2_000_000)
    for step in (0, 1_000_000):
        timeline.call("cudaDeviceSynchronize", step + 20_000, step + 999_000)
        for k in range(20):
            begin = step + 1000 + 49_900 * k
            timeline.kernel(begin, begin + 20_000, step + 200 * k, correlation=begin)
            reduced(timeline, begin + 20_000, begin + 49_900, 4096, step + 200 * k + 100)
    examination = examination_of(tmp_path / "s", timeline)
    assert finding(examination, "communication-small-messages") is None
    assert finding(examination, "communication-exposed") is not None


def test_one_small_reduction_in_each_step_is_not_joined_with_those_of_other_steps(tmp_path: Path) -> None:
    """As a progress bar that reduces one number in every step does."""
    timeline = Timeline()
    timeline.steps(*range(0, 11_000_000, 1_000_000))
    for step in range(0, 10_000_000, 1_000_000):
        timeline.call("cudaDeviceSynchronize", step + 20_000, step + 999_000)
        reduced(timeline, step + 30_000, step + 900_000, 4096, step + 10_000)
    examination = examination_of(tmp_path / "s", timeline)
    (row,) = examination.devices[0].communication.collectives  # type: ignore[union-attr]
    assert row.count == 1
    assert finding(examination, "communication-small-messages") is None


@shared
@on_trace("mi300-resnet")
def test_exposed_all_reduce_is_first_on_a_data_parallel_resnet() -> None:
    examination = of_trace("mi300-resnet")
    first, verdict = examination.findings[0], examination.verdict
    assert verdict is not None and verdict.bound == "communication" and "all_reduce" in verdict.headline
    assert first.id == verdict.finding == "communication-exposed"
    assert "all_reduce of 17.6 MB bf16" in first.evidence[0].text
    assert first.evidence[0].value == pytest.approx(8.93, abs=0.01)
    assert first.gain_ms is not None and first.gain_ms <= 6.41 - 3.97  # compute that hides nothing yet


@shared
@on_trace("dlrm")
def test_the_late_rank_is_a_finding_on_dlrm() -> None:
    files = sorted((TRACES / "dlrm").glob("rank-*.json.gz"))
    examination = examine(import_traces(files, Path(SCRATCH.name) / "dlrm-late.fathom"))
    straggler = next(f for f in examination.findings if f.id.startswith("communication-straggler"))
    assert "rank 7 is the last" in straggler.evidence[0].text and straggler.evidence[0].value == 5
    assert straggler.gain_ms == pytest.approx(1.27, abs=0.01)  # its extra compute


@shared
@on_trace("deepseek-train")
def test_communication_that_overlaps_is_no_finding() -> None:
    """109 of 113 ms are hidden; 4.2 ms of 130 are not worth one."""
    assert not [f for f in of_trace("deepseek-train").findings if f.id.startswith("communication-")]
