"""The operators of a step by phase: of the examples' GPT, and of recordings with a planted fault."""

from __future__ import annotations

from pathlib import Path

import pytest

import fathom
from fathom.analysis import BACKWARD, FORWARD, OPTIMIZER, operators_of
from fathom.sounding import open_store
from faults.kept import take
from tests.support.examined import imported, on_trace
from tests.support.paths import EXAMPLES, RECORDINGS, TRACES

GPT = EXAMPLES / "train_gpt-counters-h200.fathom.zip"


@pytest.fixture(scope="module")
def gpt():
    return operators_of(open_store(GPT), 0)


def kept(name: str, scratch: Path):
    return operators_of(open_store(take(RECORDINGS, name, scratch)), 0)


def test_every_operator_of_the_gpt_has_a_phase(gpt):
    norms = 6 * 2 + 1
    assert gpt.counts["aten::native_layer_norm", FORWARD] == norms
    assert gpt.counts["aten::native_layer_norm_backward", BACKWARD] == norms
    assert gpt.counts["autograd::engine::evaluate_function: NllLossBackward0", BACKWARD] == 1
    assert gpt.total(FORWARD) < gpt.total(BACKWARD)
    assert ("aten::native_layer_norm", BACKWARD) not in gpt.counts


def test_the_parameters_of_the_gpt_are_counted(gpt):
    block = 2 * 2 + 2 + 2 * 2  # two norms, attention without biases, two linear layers with
    assert gpt.parameters == 6 * block + 4  # and two embeddings, of which the head uses one; the last norm
    assert gpt.at_once == "fused" and gpt.total(OPTIMIZER) > 0
    assert gpt.optimizer == "AdamW" and gpt.on_lists == gpt.counts["aten::_fused_adamw_", OPTIMIZER] + sum(
        count for (name, _), count in gpt.counts.items() if name.startswith("aten::_foreach_")
    )


def test_the_launches_are_those_of_the_ledger(gpt):
    rows = fathom.open(GPT).examine().devices[0].ledger
    pieces = sum(row.count or 0.0 for row in rows if not row.entry.startswith("idle"))
    assert sum(gpt.launched.values()) == pytest.approx(pieces, rel=0.01)
    details = {row.detail for row in rows if not row.entry.startswith("idle")}
    assert {name for name, _ in gpt.launched} == details


def test_a_program_that_reads_a_number_in_each_step_waits_for_the_device(tmp_path):
    assert kept("host.routed_experts.faulty.2", tmp_path).waits
    assert not kept("host.routed_experts.mended.2", tmp_path).waits


def test_inference_is_all_forward(tmp_path):
    decode = kept("host.eager_decode.faulty.2", tmp_path)
    assert {phase for _, phase in decode.counts} == {FORWARD} and decode.parameters == 0


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")
@on_trace("kineto-resnet-w4")
def test_the_engine_of_an_early_torch_is_known_by_its_thread():
    resnet = operators_of(imported("kineto-resnet-w4"), 0)
    convolutions, norms = 53, 53
    assert resnet.counts["aten::conv2d", FORWARD] == convolutions
    assert resnet.parameters == convolutions + 2 * norms + 2
    assert resnet.total(BACKWARD) > resnet.total(FORWARD) and resnet.waits
