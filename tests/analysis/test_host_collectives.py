"""Collectives of gloo on processors: who is late, why, and what that costs, against known times."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fathom.analysis.communication import undisturbed_ms
from fathom.analysis.intervals import spans
from fathom.analysis.results import Examination
from tests.support.timelines import MAIN, Timeline, examination_of, nanoseconds

MS = 1_000_000
STEP, STEPS = 40 * MS, 10
POOL = 77, 78  # threads of the backend
PEERS = "waiting for peers"


def ranks(
    begins: list[tuple[int, int]], buckets: int = 1, end: int = 32, op: str = "aten::mm", waits: str = ""
) -> list[Timeline]:
    """Two ranks that compute until they begin `buckets` collectives at `begins` (ms, by step), and wait for
    them until `end`, in an op of the name `waits` if given.
    """
    lines = []
    for rank in range(2):
        line = Timeline(rank=rank)
        line.steps(*(k * STEP for k in range(STEPS + 1)))
        for k in range(STEPS):
            zero, begin = k * STEP, begins[k % len(begins)][rank] * MS
            line.op(op, zero, zero + begin)
            for thread in POOL[:buckets]:
                line.op("gloo:all_reduce", zero + begin, zero + end * MS, thread, kind="annotation")
            if waits:
                line.op(waits, zero + begin, zero + end * MS)
            else:
                line.wait(PEERS, zero + begin, zero + end * MS)
            line.op(op if op != "aten::mm" else "aten::add_", zero + end * MS, zero + STEP, MAIN)
        lines.append(line)
    return lines


def stragglers(examination: Examination) -> list[float]:
    return [
        f.gain_ms for f in examination.findings if f.id == "communication-straggler-compute" and f.gain_ms
    ]


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("buckets", "waits"), [(1, ""), (2, ""), (1, "_c10d_functional::wait_tensor"), (2, "c10d::allreduce_")]
)
def test_lateness_counts_once_and_the_late_rank_computes(
    tmp_path: Path, late: int, buckets: int, waits: str
) -> None:
    begin = (10, 30) if late else (30, 10)
    examination = examination_of(tmp_path / "s", *ranks([begin], buckets, waits=waits))
    by_rank = [nanoseconds(device) for device in examination.devices]
    assert by_rank[1 - late]["idle: waiting for peers"] == 20 * MS * STEPS
    assert by_rank[1 - late]["moving bytes"] == by_rank[late]["moving bytes"] == 2 * MS * STEPS
    assert "idle: waiting for peers" not in by_rank[late]
    [worst] = examination.late
    assert (worst.rank, worst.cost_ms) == (late, pytest.approx(20.0))
    assert [(lost.entry, round(lost.ms)) for lost in worst.entries] == [("ops", 20)]
    assert stragglers(examination) == [pytest.approx(20.0, rel=0.1)]


def test_a_punctual_rank_waits_where_the_others_are_late(tmp_path: Path) -> None:
    """Rank 1 computes 16 ms longer on average. In every other step rank 0 is delayed to 12 ms before it."""
    turns = [(10, 30), (14, 26)]
    examination = examination_of(tmp_path / "s", *ranks(turns))
    assert stragglers(examination) == [pytest.approx((16 + 12) / 2, rel=0.02)]
    assert examination.late[0].cost_ms == pytest.approx((16 + 12) / 2, rel=0.02)


@pytest.mark.parametrize(("delayed", "lasts"), [((30, 20), True), ((30, 10), False)])
def test_a_rank_that_computes_longer_in_every_step_is_late_beside_others(
    tmp_path: Path, delayed: tuple[int, int], lasts: bool
) -> None:
    """In every fifth step, rank 0 is delayed; rank 1 is then as fast as rank 0 ever is, unless it `lasts`."""
    examination = examination_of(tmp_path / "s", *ranks([(10, 20)] * 4 + [delayed]))
    [worst, _] = examination.late
    assert (worst.rank, worst.steps, worst.of_steps) == (1, 8, 10)
    assert bool(stragglers(examination)) == lasts


def test_undisturbed_time_is_that_of_each_op_and_gap_where_it_is_shortest() -> None:
    """Each op loses its core in another step; 1 ms before the second op is a wait, and 1 ms a collective."""
    rows = [("a", 0, 2), ("b", 6, 7), ("a", 10, 11), ("b", 15, 19), ("gloo:all_reduce", 4, 5)]
    ops = pl.DataFrame(
        [
            (number, None, MAIN, "annotation" if ":" in name else "op", name, start * MS, end * MS)
            for number, (name, start, end) in enumerate(rows)
        ],
        schema=["id", "parent", "thread", "kind", "name", "start_ns", "end_ns"],
        orient="row",
    ).with_columns(parent=pl.lit(None, pl.Int64), phase=pl.lit("timeline"), burst=0)
    steps = pl.DataFrame({"parent": [None, None], "mark_ns": [0, 10 * MS]})
    assert undisturbed_ms(ops, steps, spans([2 * MS], [3 * MS]), MAIN) == (2.0, 2.0)


@pytest.mark.parametrize(("begin", "bound"), [((20, 30), "communication"), ((30, 10), "compute")])
def test_the_verdict_names_the_wait_beside_work_of_an_unknown_kind(
    tmp_path: Path, begin: tuple[int, int], bound: str
) -> None:
    examination = examination_of(tmp_path / "s", *ranks([begin], op="mylib::step"))
    assert examination.verdict and examination.verdict.bound == bound
    assert examination.verdict.finding == "communication-straggler-compute"


def test_ranks_that_are_late_by_turns_are_no_stragglers(tmp_path: Path) -> None:
    turns = [(10, 30), (10, 30), (10, 30), (10, 30), (22, 10)]
    examination = examination_of(tmp_path / "s", *ranks(turns))
    assert {rank.rank for rank in examination.late} == {0, 1} and not stragglers(examination)


def test_collectives_that_began_in_another_order_are_left_out(tmp_path: Path) -> None:
    lines = ranks([(10, 30)])
    lines[0].op("gloo:all_reduce", 33 * MS, 34 * MS, POOL[1], kind="annotation")
    lines[1].op("gloo:all_reduce", 36 * MS, 37 * MS, POOL[1], kind="annotation")
    examination = examination_of(tmp_path / "s", *lines)
    assert examination.late[0].of == STEPS and not any(a.what == PEERS for a in examination.abstained)


def test_one_rank_keeps_its_wait_whole(tmp_path: Path) -> None:
    alone, _ = ranks([(10, 30)])
    examination = examination_of(tmp_path / "s", alone)
    assert nanoseconds(examination.devices[0])["idle: waiting for peers"] == 22 * MS * STEPS


SCALARS, CALL = 12, 200_000  # all-reduces of one scalar in a step, one after the other, in ns


def log_scalars(line: Timeline, zero: int, long: int, between: int = 0, late: int = 0) -> None:
    """A step that begins at `zero` and averages scalars over ranks; `long` of the calls take 3 ms.

    Before each call but the first, another op takes `between` ns. The first call comes `late` ns later.
    """
    at = zero + 10 * MS
    line.step(zero, zero + STEP)
    line.op("aten::mm", zero, at + late)
    for k in range(SCALARS):
        if between and k:
            line.op("aten::norm", at, at + between)
            at += between
        end = at + (3 * MS if k < long else CALL)
        begin, end = (at + late, end + 5 * MS) if k == 0 and (late or between) else (at, end)
        called = line.op("c10d::allreduce_", begin, begin + 10_000)
        moved = line.op("gloo:all_reduce", begin, end, POOL[0], kind="annotation")
        if line.phase == "attribution":
            line.tables["ops"][called] |= {"source": "train.py(7): log", "line": 9}
            line.tables["ops"][moved] |= {"shapes": "[[]]", "dtypes": '["float"]'}
        line.wait(PEERS, begin + 10_000, end)
        at = end
    line.op("aten::mm", at, zero + STEP)


def logged(
    rank: int, long: int, busy_percent: float, between: int = 0, late: int = 0, clean: int = STEP
) -> Timeline:
    line = Timeline(rank=rank)
    line.steps(*range(-STEPS * clean, 1, clean), phase="clean")
    sensors = {"device": -1, "busy_percent": busy_percent, "program_percent": 25.0, "phase": "clean"}
    for k in range(STEPS):
        line.add("telemetry", time_ns=(k - STEPS) * clean, **sensors)
        log_scalars(line, k * STEP, long, between, late)
    line.phase, line.burst = "attribution", 1
    log_scalars(line, STEPS * STEP, long, between, late)
    return line


@pytest.mark.parametrize(
    ("busy_percent", "long", "gain"),
    [
        (40.0, 0, 11 * 0.2),
        (40.0, 4, 11 / 12 * (8 * 0.2 + 4 * 3)),  # processors are free: the calls themselves take long
        (
            99.0,
            4,
            11 / 12 * (8 * 0.2 + 4 * 3),
        ),  # other programs had them meanwhile, as they do in a merged call
    ],
)
def test_reductions_of_scalars_are_joined(
    tmp_path: Path, busy_percent: float, long: int, gain: float
) -> None:
    lines = [logged(rank, long, busy_percent) for rank in range(2)]
    examination = examination_of(tmp_path / "s", *lines)
    communication = examination.devices[0].communication
    assert communication and [row.bytes for row in communication.collectives] == [4]
    [small] = [f for f in examination.findings if f.id == "communication-small-messages"]
    assert small.gain_ms == pytest.approx(gain, rel=0.1)
    assert small.where and small.where.source == "train.py(9): log"


@pytest.mark.parametrize(("busy_percent", "scale"), [(40.0, 1.0), (99.0, 1.5)])
def test_beside_other_programs_calls_keep_their_share_of_longer_clean_steps(
    tmp_path: Path, busy_percent: float, scale: float
) -> None:
    lines = [logged(rank, 0, busy_percent, clean=3 * STEP // 2) for rank in range(2)]
    examination = examination_of(tmp_path / "s", *lines)
    [small] = [f for f in examination.findings if f.id == "communication-small-messages"]
    assert small.gain_ms == pytest.approx(scale * 11 * 0.2, rel=0.1)


def test_neither_the_wait_for_a_late_rank_nor_ops_between_calls_are_saved_by_joining(tmp_path: Path) -> None:
    """Rank 1 calls the first reduction 5 ms later, so it ends 5 ms later on both; norms take 0.4 ms."""
    lines = [logged(rank, 0, 40.0, between=400_000, late=5 * MS * rank) for rank in range(2)]
    examination = examination_of(tmp_path / "s", *lines)
    [small] = [f for f in examination.findings if f.id == "communication-small-messages"]
    assert small.gain_ms == pytest.approx(11 * 0.2, rel=0.1)


MICRO = 4


def stage_of(rank: int, ring: bool) -> Timeline:
    """Two stages, of 1 and 4 ms for each pass; in a `ring`, both send before they receive."""
    line = Timeline(rank=rank)
    for phase, burst in (("timeline", 0), ("attribution", 1)):
        line.phase, line.burst = phase, burst
        for k in range(burst * STEPS, burst * STEPS + (1 if burst else STEPS)):
            at, work = k * STEP, (1 if rank == 0 else 4) * MS
            line.step(at, at + STEP)
            for _ in range(MICRO):
                for called in ("send", "recv") if rank == 0 or ring else ("recv", "send"):
                    line.op("aten::mm", at, at + work)
                    line.op(f"c10d::{called}", at + work, at + work + 10_000)
                    end = (
                        at + (5 if called == "recv" else 6) * MS
                    )  # a send lasts until the other stage has it
                    moved = line.op(f"gloo:{called}", at + work, end, MAIN, kind="annotation")
                    line.tables["ops"][moved] |= {"shapes": "[[64]]", "dtypes": '["float"]'}
                    line.wait(PEERS, at + work + 10_000, at + 5 * MS)
                    at += 5 * MS
    return line


@pytest.mark.parametrize("ring", [False, True])
def test_stages_that_send_and_receive_over_gloo_are_a_pipeline_but_not_a_ring(
    tmp_path: Path, ring: bool
) -> None:
    examination = examination_of(tmp_path / "s", *(stage_of(rank, ring) for rank in range(2)))
    assert (examination.pipeline is None) == ring
    if examination.pipeline:
        work = [round(stage.compute_ms, 1) for stage in examination.pipeline.stages]
        assert (examination.pipeline.micro_batches, work) == (MICRO, [8.0, 32.0])  # without the calls
        [bubble] = [f for f in examination.findings if f.id == "communication-pipeline-bubble"]
        assert "stage 1 (rank 1)" in bubble.action
    rows = examination.devices[0].communication.collectives if examination.devices[0].communication else []
    assert {(row.operation, row.bytes) for row in rows} == {("send_recv", 256)}


def searching(rank: int) -> Timeline:
    """The forward pass ends with a search of 2 ms. Flags are reduced 2 ms longer than a bucket."""
    line = Timeline(rank=rank)
    for phase, burst in (("timeline", 0), ("attribution", 1)):
        line.phase, line.burst = phase, burst
        for k in range(burst * STEPS, burst * STEPS + (1 if burst else STEPS)):
            zero = k * STEP
            line.step(zero, zero + STEP)
            line.op("DistributedDataParallel.forward", zero, zero + 12 * MS, kind="annotation")
            line.op("aten::mm", zero, zero + 10 * MS)
            line.op("aten::mm", zero + 12 * MS, zero + (20 - rank) * MS)
            for thread, kind, size, end in ((77, "float", 1 << 20, 22), (78, "int", 26, 24)):
                begin = zero + (20 - rank) * MS
                moved = line.op("gloo:all_reduce", begin, zero + end * MS, thread, kind="annotation")
                line.tables["ops"][moved] |= {"shapes": f"[[{size}]]", "dtypes": f'["{kind}"]'}
            line.wait(PEERS, zero + (20 - rank) * MS, zero + 24 * MS)
            line.op("aten::add_", zero + 24 * MS, zero + STEP)
    return line


def test_the_search_for_unused_parameters_costs_a_processor_its_own_time(tmp_path: Path) -> None:
    examination = examination_of(tmp_path / "s", *(searching(rank) for rank in range(2)))
    [search] = [f for f in examination.findings if f.id == "communication-unused-parameters"]
    assert search.gain_ms == pytest.approx(2 + 2)
    assert [line.value for line in search.evidence] == pytest.approx([26, 2, 2])
