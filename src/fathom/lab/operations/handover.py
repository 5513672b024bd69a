"""Hand the keys and values of a prompt from the rank that reads it to the rank that generates.

    fathom lab run layered-handover

whole_handover sends them after the last layer. layered_handover sends each layer's while the next is
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

Step = Callable[[], Tensor]
HEAD = 64  # width of a head


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    """Return the states of a prompt and of the token after it, and each layer's weights."""
    draw = Draw(seed, device)
    tokens, width, depth = draw.shape([(8192, 48), (4096, 128), (8, 3)])
    weights = draw.normal(depth, 3, width, width, dtype=draw.dtype, scale=width**-0.5)
    return draw.normal(tokens + 1, width, dtype=draw.dtype), weights


def _reads() -> bool:
    """Return whether this rank reads the prompt; ranks are paired."""
    return dist.get_rank() % 2 == 0


def _heads(rows: Tensor) -> Tensor:
    return rows.view(len(rows), -1, HEAD).transpose(0, 1).unsqueeze(0)


def _attended(query: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    heads = _heads(query), _heads(keys), _heads(values)
    result = F.scaled_dot_product_attention(*heads, is_causal=causal)
    return result.squeeze(0).transpose(0, 1).reshape(query.shape)


def _prefill(rows: Tensor, weights: Tensor, cache: Tensor, kept: Callable[[Tensor], object] = id) -> Tensor:
    """Return the states after all layers. `kept` is called with the keys and values of each, in `cache`."""
    for (of_query, of_key, of_value), layer in zip(weights, cache, strict=True):
        keys, values = layer
        torch.matmul(rows, of_key, out=keys)
        torch.matmul(rows, of_value, out=values)
        kept(layer)
        query = rows @ of_query
        rows = F.layer_norm(rows + _attended(query, keys, values, causal=True), rows.shape[-1:])
    return rows


def _decoded(row: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
    """Return the state of the next token after all layers."""
    for (of_query, of_key, of_value), (keys, values) in zip(weights, cache, strict=True):
        known = torch.cat([keys, row @ of_key]), torch.cat([values, row @ of_value])
        row = F.layer_norm(row + _attended(row @ of_query, *known, causal=False), row.shape[-1:])
    return row


def empty_cache(states: Tensor, weights: Tensor) -> Tensor:
    return states.new_empty(len(weights), 2, len(states) - 1, states.shape[1])


def reference(states: Tensor, weights: Tensor) -> Step:
    """Read the prompt and generate on the same rank."""

    def step() -> Tensor:
        cache = empty_cache(states, weights)
        last = _prefill(states[:-1], weights, cache)
        return last if _reads() else _decoded(states[-1:], weights, cache)

    return step


def whole_handover(states: Tensor, weights: Tensor) -> Step:
    cache, other = empty_cache(states, weights), dist.get_rank() ^ 1

    def step() -> Tensor:
        if not _reads():
            dist.recv(cache, other)
            return _decoded(states[-1:], weights, cache)
        last = _prefill(states[:-1], weights, cache)
        dist.send(cache, other)
        return last

    return step


def wait_for(requests: Iterable[dist.Work | None]) -> None:
    for request in requests:
        if request is not None:
            request.wait()


def layered_handover(states: Tensor, weights: Tensor) -> Step:
    """title: Send each layer's keys and values while the next layer is computed
    pair: {group: ranks, plain: whole_handover}
    saves: exposed communication between the GPUs that read prompts and those that generate
    idea: A layer's keys and values are complete before the next layer begins. Sent at once, on a stream of
      the library, they travel beside the products of the next layer, and only the last layer's transfer
      is exposed.
    cost: One message per layer instead of one, and multiprocessors that copy while others compute.
    not_when: Prompts are so short that latency bounds the messages, or the link is so slow that the transfer
      takes longer than the prefill.
    shows: {exposed communication of a prompt: the cache of all layers → part of the last}
    tips: [inference.disaggregate]
    findings: {communication-exposed: 9}
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Patel et al., Splitwise, ISCA 2024 (section 4.2: transfer per layer)
    cache, other = empty_cache(states, weights), dist.get_rank() ^ 1

    def step() -> Tensor:
        if not _reads():
            wait_for([dist.irecv(layer, other) for layer in cache])
            return _decoded(states[-1:], weights, cache)
        going: list[dist.Work | None] = []
        last = _prefill(states[:-1], weights, cache, lambda layer: going.append(dist.isend(layer, other)))
        wait_for(going)
        return last

    return step
