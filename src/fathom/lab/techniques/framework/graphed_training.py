"""
title: A whole training step as one CUDA graph
saves: host time and launch latency
idea: >-
  Forward, backward and the optimizer of a small model are hundreds of launches of a few microseconds.
  Captured once, the step is one replay; new batches are copied into the buffers that the graph reads.
cost: >-
  A private pool that keeps all activations allocated, a capturable optimizer, and no host decision within
  the step.
not_when: >-
  The device is busy all the time, the loss scaler or clipping decides on the host, or shapes change.
shows:
  - what: ledger, idle by dispatching
    plain: most of the step
    tuned: next to none
findings: [host-launch-bound, host-python]
needs: {gpu: true}
latency: included
cache: warm
"""
# Only on a GPU: the processor has no graphs.

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

LAYERS, WIDTH, STEPS, RATE = 12, 128, 8, 0.05
Given = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    weights = draw.normal(LAYERS, WIDTH, WIDTH, scale=WIDTH**-0.5)
    return draw.normal(STEPS, 64, WIDTH), draw.normal(STEPS, 64, WIDTH), weights


def _step(batch: Tensor, target: Tensor, weights: Tensor) -> None:
    """One step of gradient descent on `weights`, in place."""
    x = batch
    for weight in weights:
        x = torch.tanh(x @ weight)
    (gradient,) = torch.autograd.grad(F.mse_loss(x, target), weights)
    with torch.no_grad():
        weights.sub_(gradient, alpha=RATE)


def plain(batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    weights = weights.clone().requires_grad_()
    for batch, target in zip(batches, targets, strict=True):
        _step(batch, target, weights)
    return weights.detach()


class _Graph:
    """One step over buffers of its own."""

    def __init__(self, batch: Tensor, target: Tensor, weights: Tensor) -> None:
        self.batch, self.target = batch.clone(), target.clone()
        self.weights = weights.clone().requires_grad_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their workspaces before anything is captured
            for _ in range(3):
                _step(self.batch, self.target, self.weights)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            _step(self.batch, self.target, self.weights)

    def __call__(self, batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        self.weights.detach().copy_(weights)
        for batch, target in zip(batches, targets, strict=True):
            self.batch.copy_(batch)
            self.target.copy_(target)
            self.graph.replay()
        return self.weights.detach().clone()


_graph: list[Any] = []


def tuned(batches: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    if not _graph:
        _graph.append(_Graph(batches[0], targets[0], weights))
    result: Tensor = _graph[0](batches, targets, weights)
    return result


def work(batches: Tensor, targets: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * batches.shape[0] * batches.shape[1] * weights.numel(), "unit": "matmul.fp32"}
