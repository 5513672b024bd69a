"""Compute parts of a decode: the candidates of each token, and the adapters of each request.

    fathom lab run candidates-first batched-adapters

whole_vocabulary normalises and sorts all words; candidates_first selects the most likely ones before that.
one_adapter_each multiplies the requests of each adapter in turn; batched_adapters takes all at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw, normal

CANDIDATES = 50
logits = normal(((256, 8), (128_256, 2048)))


def whole_vocabulary(logits: Tensor) -> tuple[Tensor, Tensor]:
    shares, words = torch.softmax(logits, dim=-1).sort(dim=-1, descending=True)
    kept = shares[:, :CANDIDATES]
    return kept / kept.sum(dim=-1, keepdim=True), words[:, :CANDIDATES].contiguous()


def candidates_first(logits: Tensor) -> tuple[Tensor, Tensor]:
    """title: Select the candidates of a token before normalising them
    pair: {group: framework, plain: whole_vocabulary, inputs: logits, work: logits_work}
    saves: HBM bandwidth, and a sort of the whole vocabulary
    idea: Sampling among the 50 most likely words needs no share of any other. torch.topk selects them by
      radix without sorting, and the softmax runs over 50 values instead of 128,000. The largest logit is the
      largest share, so the candidates are the same.
    cost: The vocabulary is read by the selection alone, a few times, instead of by a softmax and a sort that
      write it several times.
    not_when: The candidates are bounded by a share of all words (top-p alone), which needs the sum over all;
      or the answer is greedy (argmax).
    shows: {kernel families of the sampling: a softmax and a radix sort of the vocabulary → a selection}
    tips: [inference.sampling]
    no_finding: No rule knows which ops choose a token.
    proof: {cache: warm}"""
    highest, words = logits.topk(CANDIDATES, dim=-1)
    return torch.softmax(highest, dim=-1), words


def logits_work(logits: Tensor) -> dict[str, float]:
    return {"bytes": logits.nbytes}


Adapters = tuple[Tensor, Tensor]


def adapted(seed: int, device: str | None = None) -> tuple[Tensor, Adapters, Tensor]:
    """Return the state of each request, the two matrices of each adapter, and the adapter of each request."""
    draw = Draw(seed, device)
    requests, count, width, rank = draw.shape([(64, 12), (32, 4), (4096, 128), (16, 4)])
    down = draw.normal(count, width, rank, dtype=draw.dtype, scale=width**-0.5)
    up = draw.normal(count, rank, width, dtype=draw.dtype, scale=rank**-0.5)
    return draw.normal(requests, width, dtype=draw.dtype), (down, up), draw.integers(0, count, requests)


def one_adapter_each(states: Tensor, adapters: Adapters, chosen: Tensor) -> Tensor:
    changes = torch.empty_like(states)
    for number, (down, up) in enumerate(zip(*adapters, strict=True)):
        mine = (chosen == number).nonzero().flatten()
        changes[mine] = states[mine] @ down @ up
    return changes


def batched_adapters(states: Tensor, adapters: Adapters, chosen: Tensor) -> Tensor:
    """title: Apply the adapters of all requests in two batched products
    pair: {group: framework, plain: one_adapter_each, inputs: adapted, work: adapted_work}
    saves: launches, and a wait of the host for each adapter
    idea: A server with many low-rank adapters has requests of different ones in a batch. Sorted by adapter,
      each takes a look-up, two small products and a write. Gathered by request, the matrices are the batches
      of two products for all requests at once, and the host need not know which adapter has how many.
    cost: The matrices of an adapter are read once for each request that uses it, 2 × rank × width elements,
      instead of once. With 64 requests that is 16 MB, far less than the weights of the layer.
    not_when: Nearly all requests use one adapter; then merge it into the weights, or multiply those together.
      Prefills have so many tokens per request that a grouped product is better.
    shows:
      launches per layer: five per adapter → four
      waits of the host: one per adapter → none
    tips: [inference.batched-adapters]
    findings: {kernels-serial-small-products: 3}
    proof: {latency: included, cache: warm}"""
    down, up = (matrices[chosen] for matrices in adapters)
    return torch.bmm(torch.bmm(states[:, None], down), up)[:, 0]


def adapted_work(states: Tensor, adapters: Adapters, chosen: Tensor) -> dict[str, Any]:
    each = sum(matrices[0].nbytes for matrices in adapters)
    return {"bytes": each * len(chosen.unique()) + 2 * states.nbytes}
