"""Weights of four bits: their rounding, the layouts of the kernels, and the loss of a trained model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fathom.lab import characters  # noqa: E402 - it needs torch
from fathom.lab.operations import matvec_int4 as lab  # noqa: E402
from fathom.lab.operations import speculation  # noqa: E402


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).bfloat16()


def test_rounded_weights_are_half_a_step_away_at_most() -> None:
    weight = drawn(32, 4 * lab.SIZE)
    codes, scales = lab.rounded(weight)
    assert codes.min() == 0 and codes.max() == 15
    for row in range(len(weight)):
        for group in range(4):
            columns = slice(group * lab.SIZE, (group + 1) * lab.SIZE)
            exact, mine = weight[row, columns].double(), lab.restored(codes, scales)[row, columns].double()
            step = float(exact.max() - exact.min()) / 15
            # Scale and middle are rounded to bfloat16, and so is each weight.
            assert float((exact - mine).abs().max()) <= step / 2 + float(exact.abs().max()) * 3 * 2**-8


def test_equal_weights_of_a_group_stay_equal() -> None:
    weight = torch.full((16, lab.SIZE), 0.5, dtype=torch.bfloat16)
    restored = lab.restored(*lab.rounded(weight))
    torch.testing.assert_close(restored, weight, rtol=2**-7, atol=0)


def test_the_kernel_multiplies_by_each_code_times_its_scale() -> None:
    rows, groups = 16, 3
    codes = torch.randint(
        0, 16, (rows, groups * lab.SIZE), dtype=torch.int32, generator=torch.Generator().manual_seed(3)
    )
    scales = drawn(groups, rows, 2)
    given = lab.packed(codes, scales)
    for column in (0, 1, lab.SIZE + 5, groups * lab.SIZE - 1):
        x = torch.zeros(1, groups * lab.SIZE, dtype=torch.bfloat16)
        x[0, column] = 1
        result = lab.int4_weights(x, torch.empty(0), given)[0].double()
        scale, middle = scales[column // lab.SIZE].double().unbind(1)
        exact = (codes[:, column] - 8) * scale + middle
        torch.testing.assert_close(result, exact, rtol=2**-6, atol=2**-6)


def test_weights_take_less_than_a_third_of_their_bytes() -> None:
    _, weight, given = lab.inputs(0, "cpu")
    assert lab.work(None, weight, given)["bytes"] < 0.3 * weight.nbytes


def quantised(windows: torch.Tensor, model: characters.Model) -> torch.Tensor:
    embedding, *layers = model
    rows = embedding[windows].flatten(1).bfloat16()
    for n, weight in enumerate(layers):
        given = lab.packed(*lab.rounded(weight.T.contiguous().bfloat16()))
        rows = lab.int4_weights(rows, weight, given)
        rows = torch.nn.functional.silu(rows) if n < len(layers) - 1 else rows
    return rows.float()


def test_a_trained_model_loses_one_percent_of_its_perplexity_at_most() -> None:
    model, _ = speculation.trained()
    exact, mine = (
        characters.perplexity(scores, model, speculation.CONTEXT)
        for scores in (speculation._scores, quantised)
    )
    assert 1 < exact < 12  # an untrained model has over 100
    assert 0.99 < mine / exact < 1.01
    untrained = tuple(torch.zeros_like(part) for part in model)
    assert characters.perplexity(speculation._scores, untrained, speculation.CONTEXT) == pytest.approx(128)
