"""A cache in int8: its rounding, its attention, and the loss of a trained model."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from fathom.lab import characters  # noqa: E402 - it needs torch
from fathom.lab.operations import kv_cache as lab  # noqa: E402

CONTEXT, WIDTH, HEADS, LAYERS, UPDATES = 48, 96, 3, 2, 150


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def test_a_row_is_rounded_by_half_a_step_of_its_own_scale() -> None:
    rows = drawn(5, 40, 32) * torch.logspace(-6, 6, 40).unsqueeze(1)
    codes, scale = lab.coded(rows)
    assert codes.dtype == torch.int8 and scale.shape == (5, 40, 1)
    largest = rows.abs().amax(dim=-1, keepdim=True)
    assert bool(((codes * scale - rows).abs() <= largest / 127 * 0.501).all())
    assert not lab.coded(torch.zeros(1, 8))[0].any()


def test_attention_over_codes_is_that_over_the_rounded_rows() -> None:
    query, keys, values = drawn(2, 3, 1, 16), drawn(2, 3, 20, 16) * 3, drawn(2, 3, 20, 16)
    given = lab.coded(keys), lab.coded(values)
    near_keys, near_values = (codes.double() * scale.double() for codes, scale in given)
    shares = torch.softmax(query.double() @ near_keys.mT / 4, dim=-1)
    torch.testing.assert_close(
        lab.attended(query, *given).double(), shares @ near_values, rtol=1e-5, atol=1e-5
    )


def rounded(rows: torch.Tensor, levels: int = lab.CODES) -> torch.Tensor:
    codes, scale = lab.coded(rows)
    coarse = lab.CODES // levels
    return (codes / coarse).round() * coarse * scale


def scores(windows: torch.Tensor, model: characters.Model, stored=lambda rows: rows) -> torch.Tensor:
    """The logits after each character; `stored` is applied to the keys and values, as a cache would."""
    embeddings, places, attention, up, down, head = model
    rows = embeddings[windows] + places[: windows.shape[1]]
    normed = partial(torch.nn.functional.layer_norm, normalized_shape=rows.shape[-1:])
    for layer in range(LAYERS):
        joint = normed(rows) @ attention[layer]
        query, *known = joint.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        keys, values = map(stored, known)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
        rows = rows + mixed.transpose(1, 2).flatten(2)
        rows = rows + torch.relu(normed(rows) @ up[layer]) @ down[layer]
    return (normed(rows) @ head)[:, CONTEXT // 2 :]


@pytest.fixture(scope="module")
def trained() -> characters.Model:
    source = torch.Generator().manual_seed(0)
    shapes = [(LAYERS, WIDTH, 3 * WIDTH), (LAYERS, WIDTH, 4 * WIDTH), (LAYERS, 4 * WIDTH, WIDTH)]
    shapes += [(WIDTH, characters.CHARACTERS)]
    model = [torch.randn(size, WIDTH, generator=source) * 0.3 for size in (characters.CHARACTERS, CONTEXT)]
    model += [torch.randn(shape, generator=source) * shape[-2] ** -0.5 for shape in shapes]
    with characters.one_thread():
        return characters.fitted(scores, model, CONTEXT, UPDATES, source, batch=32)


def test_a_trained_model_loses_a_thousandth_of_its_perplexity_at_most(trained) -> None:
    exact, mine, coarse = (
        characters.perplexity(partial(scores, stored=stored), trained, CONTEXT, windows=200)
        for stored in (lambda rows: rows, rounded, partial(rounded, levels=2))
    )
    assert 1 < exact < 16  # an untrained model has over 100
    assert abs(mine / exact - 1) < 1e-3
    assert coarse / exact - 1 > 5 * abs(mine / exact - 1)  # the test sees a loss where there is one
