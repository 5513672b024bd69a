"""Real recordings of activation checkpointing, and of long lists of tensors."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.analysis.intervals import covered
from fathom.analysis.work import op_work
from fathom.analysis.work.recompute import regions
from fathom.analysis.work.registry import evaluate
from tests.support.work_frames import recorded

torch = pytest.importorskip("torch")

SIZE, LAYERS = 32, 3
FORWARD = 2.0 * SIZE**3


def checkpointed(reentrant: bool | None) -> pl.DataFrame:
    """Ops of a step through LAYERS matrix products, all but the last recomputed backward."""
    from torch.utils.checkpoint import checkpoint

    layers = [torch.nn.Linear(SIZE, SIZE) for _ in range(LAYERS)]

    def step() -> None:
        x = torch.rand(SIZE, SIZE, requires_grad=True)
        for layer in layers[:-1]:
            x = layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant)
        layers[-1](x).sum().backward()

    return recorded(step).with_columns(kind=pl.lit("op"))


def work_of(ops: pl.DataFrame) -> pl.DataFrame:
    window = {"start_ns": [ops["start_ns"].min()], "end_ns": [ops["end_ns"].max()], "used": [True]}
    return op_work(ops, pl.DataFrame(window))


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_repeats_is_told_from_the_backward_pass(reentrant: bool) -> None:
    work = work_of(checkpointed(reentrant))
    assert work["again"].sum() == (LAYERS - 1) * FORWARD
    assert work["product"].sum() - work["again"].sum() == work_of(checkpointed(None))["product"].sum()


def between(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("mine"):
        x = layer(x)
    x = x.exp()
    with torch.profiler.record_function("mine too"):
        return layer(x)


FORMS = {
    "plain": lambda layer, x, run: run(layer, x),
    "residual": lambda layer, x, run: x + run(layer, x),
    "in regions": lambda layer, x, run: run(lambda given: between(layer, given), x),
    "nested": lambda layer, x, run: x + run(lambda given: given + run(layer, given), x),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_excludes_the_backward_pass_itself(reentrant: bool, form: str) -> None:
    from torch.utils.checkpoint import checkpoint

    layer, x = torch.nn.Linear(SIZE, SIZE), torch.rand(SIZE, SIZE, requires_grad=True)

    def step() -> None:
        FORMS[form](layer, x, lambda *given: checkpoint(*given, use_reentrant=reentrant)).sum().backward()

    ops = recorded(step)
    names = {"linear": [], "mm": [], "exp": []}
    for name, result in names.items():
        rows = ops.filter(pl.col("name") == f"aten::{name}")
        starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        result += (covered(regions(ops), starts, ends) == ends - starts).tolist()
    assert names["mm"] and not any(names["mm"])
    once = 2 if form == "in regions" else 1
    assert not any(names["linear"][:once]) and all(names["linear"][once:]) and len(names["linear"]) > once
    assert names["exp"] in ([], [False, True])


def test_algebra_and_hooks_of_the_backward_pass_repeat_nothing() -> None:
    matrix = (torch.rand(SIZE, SIZE) + SIZE * torch.eye(SIZE)).requires_grad_()
    weight = torch.rand(SIZE, SIZE)

    def step() -> None:
        hidden = matrix * 2
        hidden.register_hook(lambda gradient: gradient @ weight)
        (torch.linalg.inv(hidden).sum() + torch.cdist(matrix, weight).sum()).backward()

    ops = recorded(step).with_columns(kind=pl.lit("op"))
    assert ops["name"].str.contains("LinalgInvExBackward").any()
    assert not regions(ops).length and work_of(ops)["again"].sum() == 0


def test_without_checkpointing_nothing_is_repeated() -> None:
    ops = checkpointed(None)
    assert work_of(ops)["again"].sum() == 0 and not regions(ops).length


@pytest.mark.parametrize(("tensors", "known"), [(3, True), (30, True), (31, False), (200, False)])
def test_long_lists_are_not_taken_for_empty_ones(tensors: int, known: bool) -> None:
    lists = [torch.ones(100) for _ in range(tensors)]
    ops = recorded(lambda: torch._foreach_add_(lists, 1.0))
    row = ops.filter(pl.col("name") == "aten::_foreach_add_").row(0, named=True)
    work = evaluate(row["name"], row["shapes"], row["dtypes"], row["values"], "fp32")
    assert (work.flops, work.bytes) == ((100.0 * tensors, 800.0 * tensors) if known else (None, None))
    assert known or "long lists" in work.why
