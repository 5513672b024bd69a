"""Gradients that no optimizer uses, and recomputation, in steps that run on the CPU."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.diagnosis.signals import Signals
from fathom.sounding import import_traces
from tests.support.findings_fakes import raised
from tests.support.findings_read import recorded

torch = pytest.importorskip("torch")
KIND = "kernels-needless-backward"


def profiled(step, folder):
    """Four steps, as in a recording with shapes."""
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        for number in range(4):
            with record_function(f"ProfilerStep#{number}"):
                step()
    recording.export_chrome_trace(str(folder / "trace.json"))
    import_traces([folder / "trace.json"], folder / "trace.fathom")
    given = recorded(folder / "trace.fathom")
    steps = given.ops.filter(pl.col("name").str.starts_with("ProfilerStep"))["id"].implode()
    outermost = pl.when(~pl.col("parent").is_in(steps)).then("parent")  # a recording has no such regions
    given.__dict__["ops"] = given.ops.with_columns(phase=pl.lit("attribution"), parent=outermost)
    return given


def stepping(folder, optimizer, frozen, **settings):
    """Signals of a student that learns from a teacher, which computes gradients unless it is `frozen`."""
    teacher = torch.nn.Sequential(torch.nn.Linear(32, 300), torch.nn.ReLU(), torch.nn.Linear(300, 4))
    student, x = torch.nn.Linear(32, 4), torch.randn(256, 32)
    teacher.requires_grad_(not frozen)
    updates = optimizer(student.parameters(), lr=0.1, foreach=False, **settings)

    def step():
        aim = teacher(x)
        loss = (student(x) - aim).square().mean()
        updates.zero_grad()
        loss.backward()
        updates.step()

    return Signals(None, profiled(step, folder))


OPTIMIZERS = [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {"amsgrad": True}),
    (torch.optim.RMSprop, {"momentum": 0.9}),
]


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS)
def test_a_teacher_that_computes_gradients_is_found_with_every_optimizer(tmp_path, optimizer, settings):
    signals = stepping(tmp_path, optimizer, frozen=False, **settings)
    unused = signals["kernels.unused_gradients"]
    assert (unused.used, unused.unused) == (2, 4)
    assert {"aten::mm", "aten::threshold_backward"} <= {work.family for work in unused.works}
    assert 0 < raised(signals, KIND)[KIND].gain_ms < signals["step.timeline_ms"]


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS)
def test_a_frozen_teacher_computes_no_gradients_in_vain(tmp_path, optimizer, settings):
    assert stepping(tmp_path, optimizer, frozen=True, **settings)["kernels.unused_gradients"].unused == 0


def test_an_optimizer_whose_ops_are_unknown_shows_nothing(tmp_path):
    signals = stepping(tmp_path, torch.optim.Adadelta, frozen=False)
    assert signals.get("kernels.unused_gradients").value is None


RECOMPUTATION = "kernels-needless-recomputation"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_is_found_where_the_host_has_memory(tmp_path, reentrant):
    from torch.utils.checkpoint import checkpoint

    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
    x = torch.randn(512, 256, requires_grad=True)
    given = profiled(lambda: checkpoint(layers, x, use_reentrant=reentrant).sum().backward(), tmp_path)
    signals = Signals({"host.memory_share": 0.1}, given)
    result = raised(signals, RECOMPUTATION)[RECOMPUTATION]
    counts = {work.family: work.count for work in signals["host.recomputed"]}
    assert (counts["aten::addmm"], counts["aten::gelu"]) == (2, 1)  # one of two forward passes
    assert "aten::mm" not in counts and 0 < result.gain_ms < signals["step.timeline_ms"]
    assert not raised(Signals({"host.memory_share": 0.9}, given), RECOMPUTATION)


def test_a_backward_pass_without_checkpoints_recomputes_nothing(tmp_path):
    layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
    given = profiled(lambda: layers(torch.randn(512, 256)).sum().backward(), tmp_path)
    assert not raised(Signals({"host.memory_share": 0.1}, given), RECOMPUTATION)
