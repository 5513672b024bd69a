"""Findings about communication: on signals that must raise them, on others, and on real traces."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from fathom.analysis.communication import LateRank, LostTime
from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.diagnosis import examine
from fathom.diagnosis.signals import Repeated, Skew, SmallMessages, UnknownSignalError, Work
from fathom.sounding import import_traces
from fathom.units import NS_PER_MS
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


def on_gloo(**known: Any) -> Any:
    """The candidate of a program on CPUs whose four micro-steps wait 40 ms for reductions."""
    gloo = collective(40.0, library="gloo", families=["gloo:all_reduce"])
    ledger = [
        LedgerRow("ops", "aten::mm", 40.0),
        LedgerRow("ops", "aten::copy_", 8.0),
        communication(30.0, Entry.MOVING_BYTES),
        communication(10.0, Entry.HOST_WAITS_FOR_PEERS),
    ]
    copied = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
    works = [
        Work("ops", "aten::copy_", 4.0, 4.0, (copied, "aten::copy_")),
        Work("ops", "aten::copy_", 4.0, 4.0, ("aten::copy_",)),
    ]
    usual = {
        "step_device": "cpu",
        "host_work": works,
        "communication_repeated": [Repeated("all_reduce", 25e6, 4, 4.0, 40.0, ("gloo:all_reduce",))],
        "communication_account": account(60.0, gloo),
    }
    return kinds(*ledger, **(usual | known))["communication-repeated-in-accumulation"]


def test_reductions_of_host_threads_cost_waits_and_copies() -> None:
    """Three of four reductions are saved, with their share of the bucket's copies but no other copies."""
    assert on_gloo().gain_ms == pytest.approx(0.75 * (40.0 + 4.0))
    assert on_gloo(step_mean_ms=44.0).gain_ms == pytest.approx(0.75 * 44.0 / 2)  # the clean step is shorter


def test_ops_that_are_longer_beside_reductions_of_host_threads_get_shorter() -> None:
    slowed = {"aten::mm": 8.0}
    alone = on_gloo(communication_slowed=slowed)
    assert alone.gain_ms == pytest.approx(0.75 * 52.0) and alone.doubt == 0.3
    shared = on_gloo(communication_slowed=slowed, communication_contended=True)
    assert shared.gain_ms == pytest.approx(0.75 * 44.0) and shared.doubt == 0.5


def test_a_rank_that_is_late_in_all_micro_steps_stays_late() -> None:
    assert on_gloo(communication_skew=Skew(8.0, 8.0)).gain_ms == pytest.approx(0.75 * 44.0 - 6.0)
    assert on_gloo(communication_skew=Skew(8.0, 2.0)).gain_ms == pytest.approx(0.75 * 44.0)


@pytest.mark.parametrize(("late", "once"), [([1, 1], 6.0), ([1, 0], 2.0)])
def test_ranks_that_are_late_by_turns_catch_up(
    late: list[int], once: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two micro-steps, the late rank reduces 4 and 2 ms after the other."""
    module = importlib.import_module("fathom.diagnosis.signals.communication")
    reductions = [Repeated("all_reduce", 4e6, 2, 2.0, 9.0, ())]
    monkeypatch.setattr(module, "repeated", lambda _: reductions)
    rows = [
        {"burst": 0, "step": step, "place": part, "name": "gloo:all_reduce", "operation": "all_reduce",
         "cut": False, "rank": rank, "end_ns": 0,
         "start_ns": (step * 100 + part * 20 + (4 - 2 * part) * (rank == late[part])) * NS_PER_MS}
        for step in range(3) for part in range(2) for rank in range(2)
    ]  # fmt: skip
    peers = SimpleNamespace(arrivals=pl.DataFrame(rows).with_columns(pl.col("start_ns").cast(pl.Int64)))
    recorded = SimpleNamespace(peers=peers, account=SimpleNamespace(rank=0), read={})
    waits = 6.0 if late == [1, 1] else 4.0
    assert module.skew(recorded) == Skew(waits, once)


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
