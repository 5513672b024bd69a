"""`framework-not-compiled`: what fuses, what it saves, and where nothing is to be said."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest
from msgspec.structs import replace

import fathom
from fathom.analysis.replay import Gain
from fathom.diagnosis.engine.claims import Sized, disjoint
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.rules import Candidate, Claim, rules
from fathom.diagnosis.signals import Eager, Signal, Signals
from fathom.diagnosis.signals.eager import (
    _index_bytes,
    _of_lists,
    _parts,
    columns_of,
    numel_of,
    part_of,
)
from tests.support.findings_fakes import compute, idle, signals, work
from tests.support.paths import EXAMPLES

KIND = "framework-not-compiled"
chosen = [rule for rule in rules() if KIND in rule.kinds]


@pytest.mark.parametrize(
    ("path", "family", "part"),
    [
        ("aten::gelu", "vectorized_elementwise_kernel<Gelu>", "fused"),
        ("aten::linear > aten::addmm", "nvjet_sm90_tst", "kept"),
        ("aten::_scaled_dot_product_flash_attention", "flash_fwd_kernel", "kept"),
        ("autograd::engine::evaluate_function: A > aten::native_layer_norm_backward", "GammaBeta", "fused"),
        ("Optimizer.step#AdamW.step > aten::_fused_adamw_", "multi_tensor_apply_kernel", "outside"),
        ("torch::autograd::AccumulateGrad > aten::add_", "vectorized_elementwise_kernel", "outside"),
        ("mylib::scan", "scan_kernel", "kept"),
        ("aten::embedding_backward > aten::embedding_dense_backward", "compute_grad_weight", "kept"),
        ("", "some_kernel", "outside"),
    ],
)
def test_what_the_compiler_makes_of_a_kernel(path, family, part):
    assert part_of(path, family) == part


PUT, ADD = "aten::_index_put_impl_", "aten::index_add_"
FLOATS = '["float", "", "float", "Scalar", "Scalar"]'


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "expected"),
    [
        (PUT, "[[20000, 128], [], [200000, 128], [], []]", FLOATS, 122.88e6),
        (PUT, "[[8192, 64], [], [4086, 64], [], []]", '["c10::BFloat16", "", ""]', 6 * 4086 * 64),
        (PUT, "[[8192, 64]]", '["float"]', None),
        (PUT, None, None, None),
        (ADD, "[[5000, 64], [], [90000], [90000, 64], []]", FLOATS, 4 * (90000 + 2 * 5000) * 64),
        ("aten::scatter_add", "[[50], [], [900], [900]]", FLOATS, 4 * (900 + 2 * 50)),
        (ADD, "[[5000, 64], [], [90000]]", FLOATS, None),
        (ADD, "[[5000, 64], [], [90000], [90000, 64], []]", '["Unknown"]', None),
    ],
)
def test_the_bytes_of_adding_rows_to_their_places(op, shapes, dtypes, expected):
    assert _index_bytes(op, shapes, dtypes) == expected


HALVES = "[[[64, 8, 32], [64, 4, 32]], []]"
LISTED = '["TensorList", "Scalar"]'


def calls(*rows: tuple[str, str | None, str | None]) -> pl.DataFrame:
    """Kernels in order: the op that launched each, below another one, with its shapes and dtypes."""
    table = [(["aten::outer", op], shapes, dtypes) for op, shapes, dtypes in rows]
    schema = {"path": pl.List(pl.String), "shapes": pl.String, "dtypes": pl.String}
    return pl.DataFrame(table, schema=schema, orient="row")


@pytest.mark.parametrize(
    ("shapes", "following", "expected"),
    [
        (HALVES, '["c10::BFloat16", ""]', 2 * 2 * 64 * 12 * 32),
        (HALVES, '["", "float"]', 2 * 4 * 64 * 12 * 32),
        (HALVES, '["", "Scalar"]', None),  # no tensor
        ("[[], []]", '["float"]', None),
        (None, '["float"]', None),
    ],
)
def test_the_next_kernel_tells_the_dtype_of_what_is_joined(shapes, following, expected):
    rows = calls(("aten::cat", shapes, LISTED), ("aten::mul", "[[64, 12, 32]]", following))
    assert _of_lists(rows).to_list() == [expected, None]


def test_a_kernel_without_an_op_between_is_passed_over_and_the_last_has_no_dtype():
    cat = ("aten::cat", HALVES, LISTED)
    rows = calls(cat, ("fill", None, None), ("aten::mul", "[[64]]", '["float"]'), cat)
    assert _of_lists(rows).to_list() == [2 * 4 * 64 * 12 * 32, None, None, None]
    assert _of_lists(rows.clear()).to_list() == []


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (HALVES, 64 * 12 * 32),  # all that is joined
        ("[[64, 128], [128]]", 64 * 128),  # the largest
        ("[[[0, 8], [0, 8]], [7]]", 7),
        ("[[], []]", None),
        (None, None),
    ],
)
def test_the_number_of_elements_of_a_call(shapes, expected):
    assert numel_of(shapes) == expected


BELOW = "aten::index_add_ > aten::clone"
PUT = "autograd::A > aten::_index_put_impl_"
PUT_BY_MASK = f"{PUT} > aten::nonzero"


@pytest.mark.parametrize(
    ("path", "dtypes", "capability", "part"),
    [
        (ADD, FLOATS, "9.0", "scattered"),
        ("aten::scatter_add", FLOATS, "8.0", "scattered"),
        ("autograd::A > aten::scatter_add_", FLOATS, "9.0", "scattered"),
        (BELOW, FLOATS, "9.0", "scattered"),
        (ADD, '["c10::BFloat16"]', "9.0", "scattered"),
        (ADD, '["c10::BFloat16"]', "8.0", "kept"),  # adds no bfloat16 atomically
        (ADD, '["long int"]', "9.0", "kept"),
        (PUT, FLOATS, "9.0", "scattered"),
        (f"{PUT} > aten::remainder", '["long int"]', "9.0", "scattered"),
        ("aten::_index_put_impl_", FLOATS, "9.0", "kept"),  # assigns: only a gradient adds
        ("aten::index_select", FLOATS, "9.0", "fused"),
        ("aten::scatter_reduce_", FLOATS, "9.0", "fused"),
    ],
)
def test_rows_that_are_added_by_index_are_scattered(path, dtypes, capability, part):
    recorded = SimpleNamespace(machine={"gpus": [{"index": 0, "compute_capability": capability}]}, index=0)
    rows = [(path.split(" > "), "kernel", dtypes), (["aten::mm"], "gemm", FLOATS)]
    schema = {"path": pl.List(pl.String), "label": pl.String, "dtypes": pl.String}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    assert _parts(recorded, table).to_list() == [part, "kept"]
    masked = pl.concat([table, pl.DataFrame([(PUT_BY_MASK.split(" > "), "x", FLOATS)], schema, orient="row")])
    # The compiler leaves assignments by mask to the library.
    left = part_of(path, "kernel") if "_index_put_impl_" in path else part
    assert _parts(recorded, masked).to_list() == [left, "kept", "kept"]


def test_columns_are_the_last_dimension_of_the_largest_tensor() -> None:
    assert columns_of("[[64], [8, 4, 64], []]") == 64
    assert columns_of("[[], []]") is None and columns_of(None) is None


EAGER = Eager({"mul": 2.0, "add": 1.0}, 4.0, 40.0, 10.0, 8.0, ("aten::mul", "aten::add"), 0.6)
LEDGER = [compute("mul", 4.0), compute("add", 2.0), idle("dispatching", 0.5)]
WORKS = [work("mul", 4.0, "aten::mul"), work("add", 2.0, "aten::add")]


def given(gain: Gain | None = None, ledger=LEDGER, **more) -> Signals:
    replay = {} if gain is None else {"step.replay": type("R", (), {"gain": staticmethod(lambda _: gain)})()}
    record = {"framework.eager": EAGER, "kernels.work": WORKS, "step.mean_ms": 10.0, "host.launches": 100}
    return signals(ledger, **(record | replay | more))


def test_an_eager_program_is_told_to_compile():
    (finding,) = [item for item in findings(given(), chosen)[0] if item.id == KIND]
    # saved by fusing in both families, and in launching by its factor
    assert finding.gain_ms == pytest.approx(2.0 + 1.0 + 0.4 * 0.5)
    assert "torch.compile" in finding.remedy and any("op by op" in line.text for line in finding.evidence)


@pytest.mark.parametrize(
    ("waits_ms", "optimizer", "saved"), [(0.3, 0.0, None), (4.0, 0.0, 6.92), (4.0, 0.5, 4.96)]
)
def test_the_first_finding_names_what_cuda_graphs_gain_where_that_is_more(waits_ms, optimizer, saved):
    eager = replace(EAGER, optimizer=optimizer, host=0.9)
    ledger = [*LEDGER[:2], idle("dispatching", waits_ms)]
    result = findings(given(ledger=ledger, **{"framework.eager": eager}))[0]
    named = [(item.id, item.with_graphs_ms) for item in result if item.with_graphs_ms is not None]
    # both families, and the launches but for those of the optimizer and 2 % of the others
    assert named == ([] if saved is None else [(result[0].id, pytest.approx(saved))])
    for item in result:
        lines = [line.value for line in item.evidence if "CUDA graphs" in line.text]
        assert lines == ([] if item.with_graphs_ms is None else [item.with_graphs_ms])
        assert item.gain_ms is None or item.alone_ms >= item.gain_ms - 1e-9


def test_what_compiles_already_is_not():
    known = Signal(None, "", "parts of the program are compiled")
    result, abstained = findings(given(**{"framework.eager": known}), chosen)
    assert not result and [absence.why for absence in abstained] == [known.why]


def test_a_gain_that_may_be_small_is_no_reason_to_compile():
    assert not findings(given(Gain(0.6, 0.3, 2.0)), chosen)[0]


def test_it_claims_what_specific_causes_leave_and_before_launching():
    ledger = {("compute", "mul"): 4.0, ("idle: dispatching", ""): 4.0}
    specific = Sized(Candidate("kernels-unfused-norm", [Claim("compute", "mul", 3.0)], []), 3.0)
    launches = Sized(
        Candidate("host-launch-bound", [], [], changes=("x",), spill=("idle: dispatching",)), 4.0, 3.0, 4.0
    )
    general = Sized(
        Candidate(
            KIND,
            [Claim("compute", "mul", 3.0)],
            [],
            changes=("y",),
            spill=("idle: dispatching",),
            general=True,
        ),
        5.0,
        4.0,
        6.0,
    )
    kept = {item.candidate.kind: item for item in disjoint([launches, general, specific], ledger, 0.1)}
    assert kept["kernels-unfused-norm"].ms == 3.0
    assert kept[KIND].ms == pytest.approx(3.0)  # 1 of its 3 ms of rows, and 2 of dispatching
    assert kept["host-launch-bound"].ms == pytest.approx(2.0)
    for row, values in ledger.items():
        claims = (c for item in kept.values() for c in item.candidate.claims if (c.entry, c.detail) == row)
        assert sum(claim.ms for claim in claims) <= values + 1e-9


def test_the_example_in_eager_mode_is_told_first():
    result = fathom.open(EXAMPLES / "train_gpt-h200.fathom.zip").findings
    assert result[0].id == KIND and result[0].gain_ms > 1.0
    assert result[0].low_ms < result[0].gain_ms < result[0].high_ms
