"""Published runs are described to Calculon as its authors describe them, or left out for a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.plan.calculon import NotExpressibleError, described
from benchmarks.plan.others import published
from fathom.planner.hardware import hardware
from fathom.planner.training import Job, Layouts
from fathom.planner.workload import model


def test_a_run_is_described_as_in_calculon_s_own_validation() -> None:
    full, selective = (described(run) for run in published("gpt3-175B"))
    application, execution, system = selective
    assert system == "a100_80g.json"
    assert application["attn_size"] == 128 and application["feedforward"] == 49152
    chosen = ("num_procs", "tensor_par", "pipeline_par", "data_par", "batch_size", "pipeline_interleaving")
    assert [execution[name] for name in chosen] == [64, 8, 8, 1, 64, 3]  # validation/seqsel/tab5
    of_tensors = ("activation_recompute", "tensor_par_comm_type", "seq_par_ag_redo")
    assert [execution[name] for name in of_tensors] == ["attn_only", "rs_ag", True]
    assert [full[1][name] for name in of_tensors] == ["full", "ar", False]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"system": hardware("b200")}, "no system file for b200"),
        ({"model": model("deepseek-v3")}, "no experts"),
        ({"layout": Layouts(8, cp=2)}, "no context parallelism"),
        ({"layout": Layouts(64, sharding=3)}, "no sharding of parameters"),
        ({"job": Job(2048, 64, 64, "fp8")}, "no mixture of fp8 and wider types"),
        ({"model": model("llama3-8b")}, "no grouped attention"),
    ],
)
def test_a_run_that_calculon_cannot_express_has_its_reason(change: dict, reason: str) -> None:
    run = published("gpt3-175B")[0]
    with pytest.raises(NotExpressibleError, match=reason):
        described(replace(run, **change))
