"""From kernels to ops: sharing, windows, graphs, positions; on tables whose truth is known."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from tests.support.work_frames import Tables, frame, join
from tests.support.works import family_work, kernel_ops

STEP = 1000  # ns between marks
ATTRIBUTION = 10**6


class Program:
    """Builds the tables of one burst: ops, their launches and kernels."""

    def __init__(self, phase: str, shaped: bool, origin: int) -> None:
        self.common = {"phase": phase, "burst": 0}
        self.shaped, self.now, self.first = shaped, origin, origin
        self.ops: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []

    def op(self, name: str, shapes: Any = None, dtypes: Any = None, **rest: Any) -> int:
        number = self.first + len(self.ops)
        texts: dict[str, Any] = {}
        if self.shaped and shapes is not None:
            texts = {
                "shapes": json.dumps(shapes),
                "dtypes": json.dumps(dtypes or ["float"] * len(shapes)),
                "values": json.dumps([""] * len(shapes)),
            }
        times = {"start_ns": self.now, "end_ns": self.now + 10}
        self.ops.append({"id": number, "name": name, "thread": 1, **times, **texts, **rest, **self.common})
        return number

    def mark(self) -> None:
        self.op(f"fathom.mark#{len(self.ops)}")

    def launch(self, op: int | None, api: str = "cudaLaunchKernel") -> int:
        self.now += 10
        correlation = self.first + len(self.launches)
        times = {"start_ns": self.now, "end_ns": self.now + 5}
        row = {"correlation": correlation, "op": op, "thread": 1, "api": api, **times}
        self.launches.append(row | self.common)
        return correlation

    def kernel(self, correlation: int, name: str, time: int = 5, **rest: Any) -> None:
        self.now += 10
        row = {"correlation": correlation, "name": name, "family": name, "kind": "compute", "grid": "1x1x1"}
        times = {"start_ns": self.now, "end_ns": self.now + time}
        self.kernels.append(row | times | rest | self.common)
        self.now += time

    def mm(self, m: int, *names: str) -> int:
        number = self.op("aten::mm", [[m, 10], [10, 10]])
        for name in names or ("gemm",):
            self.kernel(self.launch(number), name)
        return number

    def tables(self) -> Tables:
        return (
            frame("ops", self.ops),
            frame("launches", self.launches),
            frame("kernels", self.kernels),
        )


def flops(m: int) -> float:
    return 2.0 * m * 10 * 10


def everything(kernels: pl.DataFrame, used: int = 1) -> pl.DataFrame:
    """Used windows that split the time of the timeline's kernels evenly."""
    timeline = kernels.filter(pl.col("phase") == "timeline")
    start, end = timeline["start_ns"].min(), timeline["end_ns"].max()
    edges = [start + (end - start) * k // used for k in range(used + 1)]
    return pl.DataFrame({"start_ns": edges[:-1], "end_ns": edges[1:], "used": [True] * used})


def by_family(tables: Tables, windows: pl.DataFrame | None = None) -> dict[str, dict[str, Any]]:
    result = family_work(*tables, everything(tables[2]) if windows is None else windows)
    return {row["family"]: row for row in result.rows(named=True)}


def test_an_ops_work_is_shared_over_its_kernels_by_time() -> None:
    program = Program("timeline", True, 0)
    op = program.op("aten::mm", [[30, 10], [10, 10]])
    program.kernel(program.launch(op), "gemm", 30)
    program.kernel(program.launch(op), "reduce", 10)
    result = by_family(program.tables())
    assert result["gemm"]["flops"] == flops(30) * 3 / 4
    assert result["reduce"]["flops"] == flops(30) / 4
    assert result["gemm"]["bytes"] + result["reduce"]["bytes"] == 4 * (300 + 100 + 300)
    assert result["gemm"]["dtype"] == "fp32"


@pytest.mark.parametrize(("rest", "divided"), [(0, False), (2, False), (20, True)])
def test_work_that_is_divided_among_long_kernels_is_marked(rest: int, divided: bool) -> None:
    """Their own bytes are unknown. Beside a short reduction, a kernel does nearly all of the work."""
    program = Program("timeline", True, 0)
    op = program.op("aten::mm", [[30, 10], [10, 10]])
    program.kernel(program.launch(op), "gemm", 30)
    if rest:
        program.kernel(program.launch(op), "reduce", rest)
    result = by_family(program.tables())
    assert result["gemm"]["divided"] == divided
    assert not rest or result["reduce"]["divided"]


def test_the_owner_is_the_nearest_ancestor_with_a_formula() -> None:
    program = Program("timeline", True, 0)
    outer = program.op("aten::linear", [[30, 10], [10, 10]])
    inner = program.op("aten::mm", [[30, 10], [10, 10]], parent=outer)
    helper = program.op("vendor::helper", parent=inner)
    program.kernel(program.launch(helper), "gemm")
    ops = kernel_ops(*program.tables()).row(0, named=True)
    assert (ops["op"], ops["owner"]) == (helper, inner)
    assert by_family(program.tables())["gemm"]["flops"] == flops(30)


def test_only_used_windows_count_and_what_sticks_out_is_cut() -> None:
    program = Program("timeline", True, 0)
    for _ in range(4):
        program.mm(30)
    starts = [row["start_ns"] for row in program.kernels]
    windows = pl.DataFrame(
        {
            "start_ns": [0, starts[1], starts[2]],
            "end_ns": [starts[1], starts[2], starts[3] + 2],  # two of five nanoseconds of the last one
            "used": [False, True, True],
        }
    )
    assert by_family(program.tables(), windows)["gemm"]["flops"] == pytest.approx(flops(30) * 2.4 / 2)


def test_a_family_abstains_with_the_share_that_is_known() -> None:
    program = Program("timeline", True, 0)
    program.mm(30)
    program.kernel(program.launch(program.op("mine::gemm")), "gemm", 15)
    row = by_family(program.tables())["gemm"]
    assert row["flops"] is None
    assert row["known"] == 0.25
    assert row["why"] == "no formula for mine::gemm"


def test_copies_sets_and_collectives() -> None:
    program = Program("timeline", True, 0)
    op = program.op("aten::copy_", [[25], [25]])
    for direction in ("HtoD pinned", "DtoD"):
        name = {"family": None, "direction": direction, "kind": "copy", "bytes": 100}
        program.kernel(program.launch(op), "Memcpy", **name)
    program.kernel(program.launch(op), "Memset", kind="set", bytes=60)
    program.kernel(program.launch(op), "nccl", kind="collective")
    result = by_family(program.tables())
    assert [result[name]["bytes"] for name in ("HtoD pinned", "DtoD", "Memset")] == [100, 200, 60]
    assert result["Memset"]["flops"] == 0
    assert result["nccl"]["bytes"] is None


def test_launches_and_ops_that_were_not_recorded_are_named() -> None:
    program = Program("timeline", True, 0)
    program.op("aten::mm", [[30, 10], [10, 10]])
    program.kernel(program.launch(None), "orphan")
    program.kernel(-7, "before")
    program.kernel(program.launch(None), "triton_poi_fused_add_0")
    result = by_family(program.tables())
    assert result["orphan"]["why"] == "launched outside any recorded op"
    assert result["before"]["why"] == "its launch was not recorded"
    assert "compiled" in result["triton_poi_fused_add_0"]["why"]


def test_compiled_kernels_move_their_arguments_once() -> None:
    program = Program("timeline", True, 0)
    for name in ("triton_poi_fused_add_0", "triton_poi_fused_embedding_1"):
        op = program.op(name, [[8, 4], [4], [8, 4], []], ["float", "c10::Half", "float", "Scalar"])
        program.kernel(program.launch(op), name)
    result = by_family(program.tables())
    assert result["triton_poi_fused_add_0"]["bytes"] == 4 * 32 + 2 * 4 + 4 * 32
    assert result["triton_poi_fused_add_0"]["flops"] is None
    assert result["triton_poi_fused_embedding_1"]["bytes"] is None


def test_a_compiled_product_has_flops_where_its_operands_fit() -> None:
    program = Program("timeline", True, 0)
    name = "triton_tem_fused_mm_0"
    op = program.op(name, [[8, 4], [4, 6], [8, 6]])
    program.kernel(program.launch(op), name)
    assert by_family(program.tables())[name]["flops"] == 2 * 8 * 4 * 6


def burst(phase: str, *steps: list[int]) -> Program:
    """A program whose steps run products of the given sizes, in one kernel each, all of one launch shape."""
    program = Program(phase, phase == "attribution", ATTRIBUTION if phase == "attribution" else 0)
    for step in steps:
        program.mark()
        for m in step:
            program.mm(m)
    program.mark()
    return program


def test_a_burst_without_shapes_takes_those_of_the_same_position() -> None:
    timeline, attribution = burst("timeline", [30, 20], [30, 20], [30, 20]), burst("attribution", [30, 20])
    tables = join(timeline.tables(), attribution.tables())
    row = by_family(tables, everything(tables[2], 3))["gemm"]
    assert row["flops"] == pytest.approx(flops(30) + flops(20))
    owners = kernel_ops(*tables)["owner"][:6].to_list()
    products = [op["id"] for op in attribution.ops if op["name"] == "aten::mm"]
    assert owners == products * 3


def test_steps_of_other_kinds_find_steps_like_themselves() -> None:
    tables = join(
        burst("timeline", [30, 20], [40, 40, 40]).tables(),
        burst("attribution", [40, 40, 40], [30, 20]).tables(),
    )
    assert by_family(tables)["gemm"]["flops"] == pytest.approx(flops(30) + flops(20) + 3 * flops(40))


def test_steps_that_disagree_decide_nothing() -> None:
    tables = join(burst("timeline", [30, 20]).tables(), burst("attribution", [30, 20], [31, 20]).tables())
    row = by_family(tables)["gemm"]
    assert row["flops"] is None
    assert row["known"] == 0.5
    assert row["why"] == "steps with the same kernels had different shapes"


def test_kernels_without_a_counterpart_have_a_reason() -> None:
    timeline, attribution = burst("timeline", [30, 20]), burst("attribution", [30])
    row = by_family(join(timeline.tables(), attribution.tables()))["gemm"]
    assert row["flops"] is None
    assert row["why"] == "no step recorded with shapes has this kernel at this place"


def test_a_step_that_differs_elsewhere_is_joined_kernel_by_kernel() -> None:
    timeline, attribution = burst("timeline", [30, 20]), burst("attribution", [30, 20])
    timeline.kernel(timeline.launch(None), "logging")
    tables = join(timeline.tables(), attribution.tables())
    result = by_family(tables)
    assert result["gemm"]["flops"] == pytest.approx(flops(30) + flops(20))
    assert result["logging"]["flops"] is None
    assert result["logging"]["why"] == "launched outside any recorded op"


@pytest.mark.parametrize(("lasts", "known"), [(10_000, True), (11_000, True), (30_000, False)])
def test_in_a_step_of_other_sizes_a_kernel_is_joined_only_if_it_takes_as_long(
    lasts: int, known: bool
) -> None:
    timeline, attribution = burst("timeline"), burst("attribution")
    for program, time, grid in ((attribution, 10_000, "30x1x1"), (timeline, lasts, "90x1x1")):
        program.kernel(program.launch(program.op("aten::mm", [[30, 10], [10, 10]])), "gemm", time)
        program.kernel(program.launch(program.op("aten::relu", [[30, 10]])), "relu", grid=grid)
        program.mark()
    result = by_family(join(timeline.tables(), attribution.tables()))
    assert result["gemm"]["flops"] == (flops(30) if known else None)
    assert result["gemm"]["why"] == ("" if known else "steps with shapes had inputs of other sizes")
    assert result["relu"]["bytes"] is None


def test_without_shapes_anywhere_it_says_so() -> None:
    row = by_family(burst("timeline", [30]).tables())["gemm"]
    assert row["flops"] is None
    assert row["why"] == "shapes were not recorded"


def capture(*sizes: int, begin: int = ATTRIBUTION) -> Program:
    """Products launched while a stream is captured: no kernel runs."""
    program = Program("attribution", True, begin)
    program.launch(None, "cudaStreamBeginCapture")
    for m in sizes:
        program.launch(program.op("aten::mm", [[m, 10], [10, 10]]))
    program.launch(program.op("aten::fill_", [[5]]), "cudaMemsetAsync")
    program.launch(None, "cudaStreamEndCapture")
    return program


def replay(*times: int, nodes: int = 2, kind: str = "set") -> Program:
    """Graph launches, each of which runs `nodes` products and a set."""
    program = Program("timeline", False, 0)
    program.mark()
    for time in times:
        correlation = program.launch(None, "cudaGraphLaunch")
        for _ in range(nodes):
            program.kernel(correlation, "gemm", time)
        program.kernel(correlation, "set", kind=kind, bytes=20)
    return program


def test_replayed_nodes_get_the_ops_of_their_capture() -> None:
    tables = join(replay(5, 5, 5).tables(), capture(30, 20).tables())
    assert by_family(tables)["gemm"]["flops"] == pytest.approx(3 * (flops(30) + flops(20)))
    ids = [op["id"] for op in capture(30, 20).ops][:2]
    assert kernel_ops(*tables)["owner"][:2].to_list() == ids


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (replay(5, nodes=3), "graph replayed; its capture was not recorded"),
        (replay(5, kind="copy"), "graph replayed; its capture was not recorded"),
    ],
)
def test_another_number_or_order_of_nodes_is_no_match(graph: Program, why: str) -> None:
    row = by_family(join(graph.tables(), capture(30, 20).tables()))["gemm"]
    assert row["flops"] is None
    assert row["why"] == why


def test_nodes_that_ran_side_by_side_prove_no_order() -> None:
    graph = replay(5)
    graph.kernels[1]["start_ns"] = graph.kernels[0]["start_ns"] + 1
    row = by_family(join(graph.tables(), capture(30, 20).tables()))["gemm"]
    assert row["flops"] is None
    assert "side by side" in row["why"]


def test_two_captures_with_the_same_launches_are_ambiguous_unless_their_ops_agree() -> None:
    item, other = capture(30, 20), capture(30, 21, begin=ATTRIBUTION + 10**5)
    row = by_family(join(replay(5).tables(), item.tables(), other.tables()))["gemm"]
    assert row["flops"] is None
    assert "several captures" in row["why"]
    twin = capture(30, 20, begin=ATTRIBUTION + 10**5)
    row = by_family(join(replay(5).tables(), item.tables(), twin.tables()))["gemm"]
    assert row["flops"] == pytest.approx(flops(30) + flops(20))


def test_empty_tables() -> None:
    tables = frame("ops", []), frame("launches", []), frame("kernels", [])
    windows = pl.DataFrame({"start_ns": [0], "end_ns": [1], "used": [True]})
    assert family_work(*tables, windows).height == 0
    assert kernel_ops(*tables).height == 0


def test_ids_may_begin_anew_in_every_burst() -> None:
    parts = []
    for number, m in enumerate((30, 20)):
        program = Program("timeline", True, 0)
        outer = program.op("aten::linear")
        program.ops[-1]["end_ns"] += 100
        inner = program.op("aten::mm", [[m, 10], [10, 10]], parent=outer)
        program.kernel(program.launch(program.op("vendor::helper", parent=inner)), f"gemm {m}")
        shift = 10**5 * number
        for row in [*program.ops, *program.launches, *program.kernels]:
            row |= {"burst": number, "start_ns": row["start_ns"] + shift, "end_ns": row["end_ns"] + shift}
        parts.append(program.tables())
    result = by_family(join(*parts))
    assert {name: row["flops"] for name, row in result.items()} == {
        "gemm 30": flops(30),
        "gemm 20": flops(20),
    }


def test_marks_may_come_from_the_table_of_steps() -> None:
    parts = [burst("timeline", [30, 20], [40, 40, 40]), burst("attribution", [40, 40, 40], [30, 20])]
    marks = [op["start_ns"] for part in parts for op in part.ops if "mark" in op["name"]]
    ops, launches, kernels = join(*(part.tables() for part in parts))
    unmarked = ops.filter(~pl.col("name").str.contains("mark"))
    second = {"start_ns": [marks[1]], "end_ns": [ATTRIBUTION], "used": [True]}
    result = family_work(unmarked, launches, kernels, pl.DataFrame(second), pl.DataFrame({"mark_ns": marks}))
    assert result["flops"][0] == pytest.approx(3 * flops(40))


def test_an_op_of_another_burst_is_never_taken() -> None:
    """Ids begin anew, and the burst of the launch has no ops at all."""
    timeline, attribution = Program("timeline", False, 0), Program("attribution", True, 0)
    attribution.mm(30)
    timeline.kernel(timeline.launch(0), "other")
    row = by_family(join(timeline.tables(), attribution.tables()))["other"]
    assert row["flops"] is None
