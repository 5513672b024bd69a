"""
title: Decoding a token as one CUDA graph
saves: host time and launch latency
idea: >-
  A token of one request is some dozens of kernels of a few microseconds in each layer, launched one by one.
  With a cache of fixed extent, and the position as a tensor that each token moves on, every token is the
  same sequence of kernels over the same memory: captured once, it is replayed for each.
cost: >-
  Attention over the whole extent of the cache, masked beyond the position; buffers that stay; a graph for
  each batch size.
not_when: >-
  Batches are so large that the device is busy all the time, the cache's extent is far beyond the usual
  length (capture some extents), or the host chooses what comes next by the token's value.
shows:
  - what: ledger, idle by dispatching
    plain: most of the step
    tuned: next to none
  - what: cudaGraphLaunch calls
    plain: none
    tuned: one a token
findings: [host-launch-bound, host-python]
needs: {gpu: true}
latency: included
cache: warm
"""
# Only on a GPU: the processor has no graphs.

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

LAYERS, HEADS, WIDTH, EXTENT, TOKENS = 12, 8, 512, 256, 16
Given = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    """The prompt's last state, weights of all layers, and the cache after a prompt of half its extent."""
    draw = Draw(seed, device)
    cache = draw.normal(LAYERS, 2, HEADS, EXTENT, WIDTH // HEADS)
    cache[:, :, :, EXTENT // 2 :] = 0
    return draw.normal(1, WIDTH), draw.normal(LAYERS, 4, WIDTH, WIDTH, scale=WIDTH**-0.5), cache


def _token(x: Tensor, weights: Tensor, cache: Tensor, position: Tensor) -> Tensor:
    """One token through all layers; its keys and values go into `cache` at `position`."""
    there = (torch.arange(EXTENT, device=x.device) <= position).view(1, EXTENT)
    for (of_q, of_k, of_v, of_out), layer in zip(weights, cache, strict=True):
        normed = F.layer_norm(x, (WIDTH,))
        q, k, v = ((normed @ weight).view(HEADS, 1, -1) for weight in (of_q, of_k, of_v))
        layer[0].index_copy_(1, position, k)
        layer[1].index_copy_(1, position, v)
        attended = F.scaled_dot_product_attention(q, layer[0], layer[1], attn_mask=there)
        x = x + attended.view(1, WIDTH) @ of_out
    return x


def plain(x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
    cache, made = cache.clone(), []
    position = torch.tensor([EXTENT // 2], device=x.device)
    for _ in range(TOKENS):
        x = _token(x, weights, cache, position)
        position += 1
        made.append(x)
    return torch.cat(made)


class _Graph:
    """One token over buffers of its own, which moves its position on."""

    def __init__(self, x: Tensor, weights: Tensor, cache: Tensor) -> None:
        self.x, self.weights, self.cache = x.clone(), weights.clone(), cache.clone()
        self.position = torch.zeros(1, dtype=torch.long, device=x.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their workspaces before anything is captured
            for _ in range(3):
                self._advance()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._advance()

    def _advance(self) -> None:
        self.x.copy_(_token(self.x, self.weights, self.cache, self.position))
        self.position.add_(1)

    def __call__(self, x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
        for mine, theirs in ((self.x, x), (self.weights, weights), (self.cache, cache)):
            mine.copy_(theirs)
        self.position.fill_(EXTENT // 2)
        made = []
        for _ in range(TOKENS):
            self.graph.replay()
            made.append(self.x.clone())
        return torch.cat(made)


_graph: list[_Graph] = []


def tuned(x: Tensor, weights: Tensor, cache: Tensor) -> Tensor:
    if not _graph:
        _graph.append(_Graph(x, weights, cache))
    return _graph[0](x, weights, cache)


def work(x: Tensor, weights: Tensor, cache: Tensor) -> dict[str, float]:
    return {"bytes": TOKENS * (weights.nbytes + cache.nbytes)}
