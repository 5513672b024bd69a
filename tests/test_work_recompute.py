"""What torch really records of activation checkpointing, and of long lists of tensors."""

from __future__ import annotations

import polars as pl
import pytest

from fathom.analysis.intervals import covered
from fathom.analysis.work import op_work
from fathom.analysis.work.recompute import regions
from fathom.analysis.work.registry import evaluate
from tests.work_frames import recorded

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


@pytest.mark.parametrize("reentrant", [True, False])
def test_when_it_is_repeated_is_apart_from_what_the_backward_pass_does_itself(reentrant: bool) -> None:
    ops = checkpointed(reentrant)
    forward, backward = (ops.filter(pl.col("name") == f"aten::{name}") for name in ("linear", "mm"))
    held = regions(ops)
    starts, ends = forward["start_ns"].to_numpy(), forward["end_ns"].to_numpy()
    assert (covered(held, starts, ends) == ends - starts).sum() == LAYERS - 1
    assert len(backward)
    assert not covered(held, backward["start_ns"].to_numpy(), backward["end_ns"].to_numpy()).any()


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
