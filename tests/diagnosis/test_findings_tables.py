"""`kernels-dense-embedding-gradient`: tables whose every row is updated though few are looked up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

import fathom
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.rules import rules
from fathom.diagnosis.signals import Signals, Tables
from tests.support.findings_fakes import compute, raised, signals, work
from tests.support.running import run_fathom

KIND = "kernels-dense-embedding-gradient"
ROOT = Path(__file__).parents[2]
PROGRAM = "faults.programs.kernels.dense_embedding_gradients"
CHOSEN = [rule for rule in rules() if KIND in rule.kinds]


def stepping(lookups: float, ms: float = 6.0, *more: LedgerRow, **known) -> Signals:
    """A step of 10 ms, `ms` of which pass over a table of a million rows."""
    passes = work("multi_tensor_apply_kernel", ms, "Optimizer.step#Adam.step", "aten::_fused_adam_")
    tables = [Tables(1_000_000, 64, 1, lookups, [passes], "train.py(3): main")]
    ledger = [compute("multi_tensor_apply_kernel", ms), compute("gemm", 10.0 - ms), *more]
    return signals(ledger, kernels_work=[passes], kernels_tables=tables, **known)


def test_few_rows_of_a_large_table_are_named_with_what_a_sparse_gradient_leaves() -> None:
    result = raised(stepping(lookups=10_000), KIND)[KIND]
    left = 4 * 0.01
    assert sum(claim.ms for claim in result.claims) == pytest.approx(6.0 * (1 - left))
    assert result.changes == (f"family:multi_tensor_apply_kernel={left:.6f}",)
    assert result.source == "train.py(3): main" and result.evidence[0].value == pytest.approx(1.0)


@pytest.mark.parametrize("given", [stepping(lookups=200_000), stepping(lookups=100, ms=0.1)])
def test_many_rows_and_small_tables_are_left_as_they_are(given: Signals) -> None:
    assert not raised(given, KIND)


def test_several_ranks_abstain() -> None:
    result, abstained = findings(stepping(10_000, 6.0, LedgerRow("communication", "all-reduce", 1.0)), CHOSEN)
    assert not result and "NCCL" in abstained[0].why


def test_on_a_processor_the_share_of_the_clean_step_is_gained() -> None:
    passes = work("aten::_fused_adam_", 6.0, "Optimizer.step#Adam.step", "aten::_fused_adam_", entry="ops")
    tables = [Tables(1_000_000, 64, 2, 20_000, [passes])]
    ledger = [LedgerRow("ops", "aten::_fused_adam_", 6.0), LedgerRow("ops", "aten::mm", 4.0)]
    given = signals(ledger, kernels_tables=tables, step_device="cpu", step_mean_ms=5.0)
    assert raised(given, KIND)[KIND].gain_ms == pytest.approx(3.0 * (1 - 4 * 0.01))


@pytest.mark.programs
@pytest.mark.parametrize("form", ["faulty", "mended"])
def test_a_recorded_program_is_told_from_its_mended_form(form: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", PROGRAM, "--device", "cpu", "--small", "--form", form, "--steps", "2400"]
    options = ["--no-measure", "--stop-after", "--depth", "timeline", "-o", str(tmp_path / "a.fathom")]
    done = run_fathom("run", *options, "--", *command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    sounding = fathom.open(tmp_path / "a.fathom")
    named = {finding.id: finding for finding in sounding.examine().findings}
    assert (KIND in named) == (form == "faulty")
    if form == "faulty":
        assert named[KIND].low_ms and "dense_embedding_gradients.py" in (named[KIND].where.source or "")
        shapes = sounding.table("ops").filter(pl.col("name") == "aten::embedding_dense_backward").collect()
        assert json.loads(shapes["values"].drop_nulls()[0])[2] == "20000"
