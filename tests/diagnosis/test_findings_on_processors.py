"""Gains of compiling and of a fused optimizer on a processor that computes op by op."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from fathom.analysis.entries import Entry
from fathom.analysis.intervals import spans
from fathom.analysis.results import LedgerRow
from fathom.analysis.work import rows_of
from fathom.diagnosis.signals import Interpreted, Optimizers, Signals, UnknownSignalError, Usage, interpreted
from fathom.diagnosis.signals.operations import IN_ADAM
from fathom.diagnosis.signals.recorded import OpPaths
from fathom.sounding.schema import empty
from tests.support.findings_fakes import raised, signals, work
from tests.support.work_frames import recorded

torch = pytest.importorskip("torch")
ADAM, SGD = "Optimizer.step#AdamW.step", "Optimizer.step#SGD.step"
OPTIMIZER, COMPILER = "kernels-for-loop-optimizer", "framework-not-compiled"


def updates(region: str, count: float = 200.0, op: str = "aten::mul_") -> list:
    return [work(op, 2.0, region, op, entry=Entry.OPS, count=count, source="train.py(9): train")]


def step(
    works: list, share: float = 0.4, samples: int = 100, clean: float = 0.5, between: float = 0.8
) -> Signals:
    """A profiled step of 2 ms of ops and 4 ms of Python, of which the clean one takes the share `clean`."""
    ledger = [LedgerRow(Entry.OPS, "aten::mul_", 2.0), LedgerRow(Entry.PYTHON, "", 4.0)]
    mine = {(row.entry, row.detail): clean * row.ms for row in ledger}
    more = {"step_clean_ledger": mine, "step_mean_ms": clean * 6.0, "host_work": works}
    return signals(ledger, step_device="cpu", host_optimizers=Optimizers(share, samples, between), **more)


def test_an_optimizer_that_loops_gains_what_samples_of_clean_steps_say():
    finding = raised(step(updates(ADAM)), OPTIMIZER)[OPTIMIZER]
    assert finding.gain_ms == pytest.approx(0.75 * 0.4 * 3.0)
    in_clean = sum(0.5 * claim.ms for claim in finding.claims)
    assert in_clean == pytest.approx(finding.gain_ms)
    assert finding.source == "train.py(9): train"
    few = raised(step(updates(ADAM), samples=12), OPTIMIZER)[OPTIMIZER]
    assert few.doubt > finding.doubt + 0.2


def test_an_optimizer_gains_no_more_than_its_ops_and_python():
    finding = raised(step(updates(ADAM), share=1.0, between=0.1), OPTIMIZER)[OPTIMIZER]
    assert {claim.entry: claim.ms for claim in finding.claims} == {Entry.OPS: 2.0, Entry.PYTHON: 0.4}
    assert finding.gain_ms == pytest.approx(0.5 * 2.4)
    assert not raised(step(updates(ADAM), clean=0.0), OPTIMIZER)


@pytest.mark.parametrize(
    ("works", "share"),
    [
        (updates(ADAM, count=20.0), 0.4),  # few parameters
        (updates(SGD), 0.4),  # a fused one may take longer
        (updates(ADAM, op="aten::_fused_adamw_"), 0.4),
        (updates(ADAM, op="aten::item"), 0.4),  # lists of tensors read each count of steps
        (updates("MyModel"), 0.4),
        (updates(ADAM), 0.0),  # no sample
    ],
)
def test_other_optimizers_and_fused_ones_are_no_loops(works, share):
    assert not raised(step(works, share), OPTIMIZER)


def used(system: float, faults: float, grown: float | None = 0.0, ticks: float = 400.0, **more) -> Usage:
    return Usage(system, faults, ticks, grown, ready=None, **more)


def faulting(usage: Usage, allocator: str = "glibc", device: str = "cpu") -> Signals:
    """A step of 200 ms, 250 ms profiled, whose thread uses the kernel like this."""
    ledger = [LedgerRow(Entry.OPS, "aten::mul_", 240.0), LedgerRow(Entry.PYTHON, "", 10.0)]
    mine = {(row.entry, row.detail): 0.8 * row.ms for row in ledger}
    more = {"step_clean_ledger": mine, "step_mean_ms": 200.0, "host_allocator": allocator}
    return signals(ledger, step_device=device, host_usage=usage, **more)


PAGES = "host-page-faults"


def test_memory_that_each_step_takes_again_costs_the_kernel_s_time():
    # U-Net on two cores: 8,250 faults and 27 ms per step; with memory kept, steps took 30 ms less
    finding = raised(faulting(used(0.135, 8250.0)), PAGES)[PAGES]
    assert finding.gain_ms == pytest.approx(27.0)
    assert sum(0.8 * claim.ms for claim in finding.claims) == pytest.approx(27.0)
    grows = used(0.135, 8250.0, grown=4000 * 4096.0)
    assert raised(faulting(grows), PAGES)[PAGES].gain_ms == pytest.approx(0.004 * 4250)
    reads = raised(faulting(used(0.6, 8250.0)), PAGES)[PAGES]  # most of it in other system calls
    assert reads.gain_ms == pytest.approx(0.004 * 8250) and reads.doubt >= 0.8
    slow = raised(faulting(used(0.25, 5000.0, fault_ns=9000.0)), PAGES)[PAGES]  # where faults take longer
    assert slow.gain_ms == pytest.approx(50.0)
    quick = raised(faulting(used(0.25, 5000.0, fault_ns=1000.0)), PAGES)[PAGES]
    assert quick.gain_ms == pytest.approx(7.5)
    brief = raised(faulting(used(0.135, 8250.0, ticks=4.0)), PAGES)[PAGES]
    assert brief.doubt == pytest.approx(0.8) and finding.doubt == pytest.approx(0.35)


@pytest.mark.parametrize(
    "given",
    [
        faulting(used(0.135, 8250.0), allocator="libjemalloc.so.2"),
        faulting(used(0.135, 8250.0), allocator="MALLOC_TRIM_THRESHOLD_"),
        faulting(used(0.135, 8250.0), device="cuda"),
        faulting(used(0.135, 8250.0, grown=None)),
        faulting(used(0.0, 8250.0)),
        faulting(used(0.135, 4000.0, grown=4000 * 4096.0)),
    ],
)
def test_pages_that_the_program_keeps_or_another_allocator_takes_are_no_finding(given):
    assert not raised(given, PAGES)


FILE = "/usr/lib/python3/site-packages/torch/"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (f"main (train.py:9);Adam.step ({FILE}optim/adam.py:240)", True),
        (f"main (train.py:9);step ({FILE}optim/adam.py:240);_stack ({FILE}utils/_foreach_utils.py:9)", True),
        (f"main (train.py:9);step ({FILE}optim/adam.py:2);no_grad ({FILE}utils/_contextlib.py:116)", True),
        (f"step ({FILE}optim/adam.py:226);closure (loops/closure.py:131);forward (train.py:3)", False),
        (f"step ({FILE}optim/adam.py:226);closure (train.py:3);backward ({FILE}autograd/graph.py:8)", False),
        (f"main (train.py:9);forward ({FILE}nn/modules/module.py:1)", False),
        (f"step ({FILE}optim/adam.py:403);is_compiling ({FILE}compiler/__init__.py:5)", True),
        (f"step ({FILE}optim/sgd.py:3)", False),
        (f"step ({FILE}optim/lr_scheduler.py:3)", False),
        (f"step ({FILE}optim/lr_scheduler.py:3);step ({FILE}optim/adamw.py:3)", True),
        ("main (my/optimizer.py:9)", False),
    ],
)
def test_closures_of_an_optimizer_are_not_its_own_time(stack, expected):
    assert pl.Series([stack]).str.contains(IN_ADAM)[0] is expected


def profiled(program, outside=lambda name: False) -> SimpleNamespace:
    """The attribution phase of a step in which a module calls all ops but those `outside`."""
    ops = recorded(program).with_columns(
        phase=pl.lit("attribution"), burst=pl.lit(0), ran=pl.lit(None, pl.String)
    )
    mine = pl.Series([None if outside(name) else "Model_0" for name in ops["name"]], dtype=pl.String)
    ops = ops.with_columns(module=mine).sort("start_ns")
    times = {"mark_ns": [ops["start_ns"].min()], "end_ns": [ops["end_ns"].max()], "phase": ["attribution"]}
    steps = pl.DataFrame(times | {"parent": [None], "kind": ["train"]})
    took = (
        ops.filter(kind="op").select("name", ns=pl.col("end_ns") - pl.col("start_ns")).group_by("name").sum()
    )
    clean = {(Entry.OPS, name): ns / 1e6 for name, ns in took.iter_rows()} | {(Entry.PYTHON, ""): 5.0}
    parents = rows_of(ops, ops, "parent")
    return SimpleNamespace(
        facts={},
        ops=ops,
        parents=parents,
        paths=OpPaths(ops, parents),
        rows=lambda _: steps.lazy(),
        account=SimpleNamespace(kind="train"),
        table=empty,
        inside=lambda rows: pl.Series([True] * rows.height),
        window=lambda rows: pl.Series([0] * rows.height),
        used=spans(times["mark_ns"], times["end_ns"]),
        machine={},
        read={"step.clean_ledger": clean},
    )


def pointwise() -> None:
    x = torch.randn(64, 4096)
    for _ in range(20):
        x = torch.tanh(x * 2 + 1)


def products() -> None:
    x = torch.randn(64, 64)
    for _ in range(20):
        x = x @ x


def views() -> None:
    x = torch.randn(64, 64)
    for _ in range(20):
        x = (x @ x).view(32, 128).transpose(0, 1).reshape(64, 64) + 1


def test_chains_of_ops_become_few_calls_and_keep_what_they_compute():
    effect = interpreted.interpreted(profiled(pointwise))
    assert effect.before >= 60 and effect.after <= 0.1 * effect.before
    assert all(0 < share <= 1 for share in effect.ops.values())
    assert effect.ops["aten::tanh"] < 0.9  # generated code computes it, too
    assert 0 < effect.python <= 1


def test_products_stay_and_views_between_them_go():
    with pytest.raises(UnknownSignalError, match="could fuse"):
        interpreted.interpreted(profiled(products))
    effect = interpreted.interpreted(profiled(views))
    assert "aten::mm" not in effect.ops
    assert effect.ops["aten::transpose"] == pytest.approx(1.0)


def test_work_outside_the_model_stays():
    effect = interpreted.interpreted(profiled(views, outside=lambda name: "add" in name or "reshape" in name))
    assert "aten::add" not in effect.ops
    with pytest.raises(UnknownSignalError, match="modules"):
        interpreted.interpreted(profiled(views, outside=lambda _: True))


def test_a_program_that_compiles_is_left_alone():
    given = profiled(pointwise)
    given.facts = {"compiler": {}}
    with pytest.raises(UnknownSignalError, match="compiler"):
        interpreted.interpreted(given)


def test_compiling_gains_the_share_of_each_row_in_the_clean_step():
    ledger = [LedgerRow(Entry.OPS, "aten::mul", 4.0), LedgerRow(Entry.PYTHON, "", 6.0)]
    clean = {(Entry.OPS, "aten::mul"): 3.0, (Entry.PYTHON, ""): 2.0}
    effect = Interpreted({"aten::mul": 0.5, "aten::never": 0.5}, 0.75, 40, 8)
    more = {"step_clean_ledger": clean, "host_interpreted": effect}
    finding = raised(signals(ledger, step_device="cpu", **more), COMPILER)[COMPILER]
    assert finding.gain_ms == pytest.approx(0.5 * 3.0 + 0.75 * 2.0)
    assert {claim.entry: claim.ms for claim in finding.claims} == {Entry.OPS: 2.0, Entry.PYTHON: 4.5}


def test_time_that_compiling_does_not_save_is_no_evidence():
    ledger = [LedgerRow(Entry.OPS, "aten::mul", 4.0), LedgerRow(Entry.PYTHON, "", 6.0)]
    effect = Interpreted({"aten::mul": 0.5}, 0.0, 40, 8)
    finding = raised(signals(ledger, step_device="cpu", host_interpreted=effect), COMPILER)[COMPILER]
    assert all(line.value > 0 for line in finding.evidence)


def test_annotations_around_the_model_change_nothing():
    plain = interpreted.interpreted(profiled(views))

    def annotated() -> None:
        with torch.profiler.record_function("forward"):
            views()

    around = interpreted.interpreted(profiled(annotated))
    assert around.before == plain.before == 40
    assert around.python > 0  # without the annotation's start, which takes long once
