"""Train a model whose layers are split into stages, one or two on each rank.

    fathom lab run one-forward-one-backward interleaved-stages zero-bubble

all_forward_first (GPipe) runs all micro-batches forward, then all backward. one_forward_one_backward
alternates them. interleaved_stages has two shorter stages on a rank, zero_bubble fills waits with gradients
of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from fathom.lab import Draw

LAYERS_A_RANK, MICRO_BATCHES = 4, 8
Step = Callable[[], Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the weights of all layers and the batch, equal on all ranks."""
    draw = Draw(seed, device)
    width, rows = draw.size(gpu=4096, cpu=48), draw.size(gpu=16384, cpu=512)
    weights = [
        draw.normal(width, width, scale=width**-0.5) for _ in range(LAYERS_A_RANK * dist.get_world_size())
    ]
    return weights, draw.normal(rows, width)


class _Layer(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(*weight.shape, bias=False, device="meta")
        self.linear.weight = nn.Parameter(weight.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def _layers(stages: int) -> list[list[int]]:
    """Return the layers of this rank's stages; stages are dealt out to the ranks in turn."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    size = LAYERS_A_RANK // stages
    firsts = [size * (rank + ranks * number) for number in range(stages)]
    return [list(range(first, first + size)) for first in firsts]


def reference(weights: list[Tensor], batch: Tensor) -> Step:
    """Compute all layers on each rank."""
    network = nn.Sequential(*map(_Layer, weights))

    def step() -> Tensor:
        network.zero_grad()
        _loss(network(batch), batch).backward()
        return torch.stack([parameter.grad.sum(0) for parameter in network.parameters()])

    return step


def _step(schedule: Any, modules: list[nn.Module], layers: list[list[int]], batch: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    columns = batch.new_empty(LAYERS_A_RANK * ranks, batch.shape[1])

    def step() -> Tensor:
        for module in modules:
            module.zero_grad()
        given = {"target": batch} if rank == ranks - 1 else {}
        schedule.step(*([batch] if rank == 0 else []), **given)
        # The schedules give layers to ranks differently, so column sums of all gradients are compared.
        columns.zero_()
        for module, part in zip(modules, layers, strict=True):
            for parameter, layer in zip(module.parameters(), part, strict=True):
                columns[layer] = parameter.grad.sum(0)
        dist.all_reduce(columns)
        return columns

    return step


def _pipelined(weights: list[Tensor], batch: Tensor, schedule: Any, stages: int = 1) -> Step:
    rank, ranks, layers = dist.get_rank(), dist.get_world_size(), _layers(stages)
    modules: list[nn.Module] = [nn.Sequential(*(_Layer(weights[n]) for n in part)) for part in layers]
    piped = [
        PipelineStage(module, rank + ranks * number, ranks * stages, batch.device)
        for number, module in enumerate(modules)
    ]
    several = schedule in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble)
    return _step(
        schedule(piped if several else piped[0], MICRO_BATCHES, loss_fn=_loss), modules, layers, batch
    )


def all_forward_first(weights: list[Tensor], batch: Tensor) -> Step:
    return _pipelined(weights, batch, ScheduleGPipe)


def one_forward_one_backward(weights: list[Tensor], batch: Tensor) -> Step:
    """title: Alternate forward and backward micro-batches in a pipeline (1F1B)
    pair: {group: ranks, plain: all_forward_first}
    saves: memory of activations
    idea: GPipe holds the activations of all micro-batches until the first backward pass. 1F1B runs a
      micro-batch backward as soon as it can, so that a stage holds at most as many as there are stages
      after it.
    cost: None. The bubble is the same, (p-1)/(m+p-1) of the step with p stages and m micro-batches. Memory
      falls from m micro-batches to at most p, so m can grow, which shrinks the bubble.
    not_when: There are no more micro-batches than stages.
    shows: {micro-batches whose activations a stage holds: all → at most the number of stages}
    gains: memory
    tips: [communication.pipeline-schedule]
    no_finding: it saves memory of activations, and no finding judges memory of several ranks.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Narayanan et al., PipeDream, SOSP 2019; Huang et al., GPipe, NeurIPS 2019
    return _pipelined(weights, batch, Schedule1F1B)


def interleaved_stages(weights: list[Tensor], batch: Tensor) -> Step:
    """title: Give each rank two shorter pipeline stages
    pair: {group: ranks, plain: one_forward_one_backward}
    saves: part of the pipeline's bubble
    idea: With v stages on a rank, each 1/v as long, the first micro-batch reaches the last rank in 1/v of
      the time. The bubble shrinks by the factor v.
    cost: v times as many messages between ranks, and some more activations in memory.
    not_when: There are many more micro-batches than stages (the bubble is small), or the links between
      ranks are slow.
    shows: {idle time at the start and end of a step: p-1 micro-batches → (p-1)/v}
    tips: [communication.pipeline-schedule, communication.micro-batches]
    findings: {communication-pipeline-bubble: 1}
    no_gain: two H100s, 0.97 times as fast. With two stages the bubble is small, and messages double.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC 2021
    return _pipelined(weights, batch, ScheduleInterleaved1F1B, 2)


def zero_bubble(weights: list[Tensor], batch: Tensor) -> Step:
    """title: Fill the pipeline's bubble with gradients of weights
    pair: {group: ranks, plain: interleaved_stages}
    saves: the rest of the pipeline's bubble
    idea: Only the gradient of a stage's input is needed by the stage before. The gradients of its weights
      can wait. The schedule computes them while a rank would otherwise wait.
    cost: Activations stay in memory until their gradients of weights are computed. The backward pass
      becomes two passes through autograd, which takes host time.
    not_when: Steps are bound by launches, or there are many more micro-batches than stages.
    shows: {idle time at the end of a step: (p-1)/v backward passes → little}
    tips: [communication.pipeline-schedule, communication.micro-batches]
    findings: {communication-pipeline-bubble: 2}
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024
    return _pipelined(weights, batch, ScheduleInterleavedZeroBubble, 2)
