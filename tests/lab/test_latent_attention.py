"""Latent attention with absorbed matrices is the attention that the paper defines, head by head."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from fathom.lab.operations import latent_attention as lab  # noqa: E402 - it needs torch


def defined(queries: torch.Tensor, cache: torch.Tensor, ups: lab.Ups) -> torch.Tensor:
    """DeepSeek-V2, equations 10, 11 and 14 to 18, for one token per request, with sums in Python's order."""
    (up_keys, up_values), rank = ups, ups[1].shape[1]
    outputs = torch.zeros(len(queries), up_keys.shape[0], up_values.shape[2], dtype=torch.float64)
    for request, (heads, rows) in enumerate(zip(queries.double(), cache.double(), strict=True)):
        for head, query in enumerate(heads):
            keys = [torch.cat([up_keys[head].double() @ row[:rank], row[rank:]]) for row in rows]
            weights = [math.exp(float(query @ key) / math.sqrt(len(query))) for key in keys]
            for weight, row in zip(weights, rows, strict=True):
                value = row[:rank] @ up_values[head].double()
                outputs[request, head] += weight / sum(weights) * value
    return outputs


@pytest.mark.parametrize("form", [lab.expanded, lab.latent_attention])
def test_both_forms_compute_the_definition(form) -> None:
    queries, cache, ups = lab.inputs(1, "cpu")
    given = queries, cache[:, :7], ups
    torch.testing.assert_close(form(*given).double(), defined(*given), rtol=1e-4, atol=1e-5)


def test_positions_matter_through_the_rotated_part_alone() -> None:
    queries, cache, ups = lab.inputs(2, "cpu")
    rank, turned = ups[1].shape[1], cache.clone()
    turned[..., rank:] = -cache[..., rank:]
    before, after = (lab.latent_attention(queries, each, ups) for each in (cache, turned))
    assert float((before - after).abs().max()) > 1e-2
    queries[..., ups[0].shape[1] :] = 0  # no query asks for a position
    before, after = (lab.latent_attention(queries, each, ups) for each in (cache, turned))
    torch.testing.assert_close(before, after)


def test_absorbed_matrices_need_the_flops_that_are_declared() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    given = lab.inputs(3, "cpu")
    with FlopCounterMode(display=False) as counter:
        lab.latent_attention(*given)
    assert counter.get_total_flops() == lab.work(*given)["flops"]
    with FlopCounterMode(display=False) as plain:
        lab.expanded(*given)
    assert plain.get_total_flops() > 5 * counter.get_total_flops()
