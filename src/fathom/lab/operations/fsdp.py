"""Train with fully sharded parameters (FSDP2).

    fathom lab run sharded-blocks kept-parameters prefetched-parameters

whole_model gathers all parameters at once, sharded_blocks those of one block at a time while the previous
one computes. kept_parameters does not gather again in the backward pass. prefetched_parameters gathers two
blocks in advance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from fathom.lab import Draw

BLOCKS, AHEAD = 8, 2
Step = Callable[[], list[Tensor]]


def inputs(seed: int, device: str | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the weights, equal on all ranks, and the batch of every rank."""
    draw = Draw(seed, device)
    width, rows = draw.size(gpu=4096, cpu=64), draw.size(gpu=4096, cpu=8)
    weights = [draw.normal(width, width, scale=width**-0.5) for _ in range(BLOCKS)]
    return weights, draw.normal(dist.get_world_size(), rows, width)


class _Block(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(x @ self.weight)


def _network(weights: list[Tensor]) -> nn.Sequential:
    return nn.Sequential(*map(_Block, weights))


def reference(weights: list[Tensor], batches: Tensor) -> Step:
    """Compute the mean gradient of all batches, and return this rank's rows of it."""
    network = _network(weights)

    def step() -> list[Tensor]:
        network.zero_grad()
        (sum(network(batch).square().mean() for batch in batches) / len(batches)).backward()
        return [parameter.grad.chunk(len(batches))[dist.get_rank()] for parameter in network.parameters()]

    return step


def _step(network: nn.Sequential, batches: Tensor) -> Step:
    batch = batches[dist.get_rank()]

    def step() -> list[Tensor]:
        network.zero_grad()
        network(batch).square().mean().backward()
        return [parameter.grad.to_local() for parameter in network.parameters()]

    return step


def _blocks(weights: list[Tensor], batches: Tensor, **how: Any) -> nn.Sequential:
    network = _network(weights)
    mesh = dist.init_device_mesh(batches.device.type, (dist.get_world_size(),))
    for block in network:
        fully_shard(block, mesh=mesh, **how)
    return fully_shard(network, mesh=mesh, **how)


def whole_model(weights: list[Tensor], batches: Tensor) -> Step:
    mesh = dist.init_device_mesh(batches.device.type, (dist.get_world_size(),))
    return _step(fully_shard(_network(weights), mesh=mesh), batches)


def sharded_blocks(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Shard each block, so that its gather overlaps the block before
    pair: {group: ranks, plain: whole_model}
    saves: exposed communication, and memory of gathered parameters
    idea: fully_shard on the whole model is one group, so all parameters are gathered before the first block
      computes, and all gradients are reduced after the last. With one group per block, FSDP2 gathers the
      next block and reduces the last one while the present one computes.
    cost: More and smaller collectives. One or two blocks are gathered at a time instead of the whole model.
    not_when: Blocks are so small that their gathers are bound by latency; then group several of them.
    shows:
      exposed communication: the whole gather and the whole reduce-scatter → those of one block each
      memory of gathered parameters: the whole model → two blocks
    no_gain: two H100s over NVLink, 0.96 times as fast. A root group keeps its parameters for the backward
      pass, while blocks gather theirs again; see kept-parameters.
    tips: [communication.fsdp-blocks]
    findings: {communication-exposed: 3, communication-gathers-late: 2}
    needs: {ranks: 2}
    proof: {latency: included}"""
    # https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    return _step(_blocks(weights, batches), batches)


def kept_parameters(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Keep gathered parameters until the backward pass
    pair: {group: ranks, plain: sharded_blocks}
    saves: the second all-gather of each block
    idea: By default a block frees its gathered parameters after the forward pass and gathers them again in
      the backward pass. With reshard_after_forward=False they stay, as in ZeRO-2.
    cost: Memory of all gathered parameters. Communication falls from three times the parameters (two
      gathers, one reduce-scatter) to two.
    not_when: The unsharded parameters do not fit, or the second gathers are hidden by the backward pass
      anyway.
    shows: {all-gathers per block and step: two → one}
    tips: [communication.fsdp-blocks]
    findings: {communication-exposed: 4, communication-gathered-twice: 1}
    needs: {ranks: 2}
    proof: {latency: included}"""
    return _step(_blocks(weights, batches, reshard_after_forward=False), batches)


def prefetched_parameters(weights: list[Tensor], batches: Tensor) -> Step:
    """title: Gather parameters two blocks in advance
    pair: {group: ranks, plain: sharded_blocks}
    saves: exposed communication where the host is late or gathers take unequally long
    idea: By default a block's gather is issued when the host reaches the block, one before it is needed.
      With set_modules_to_forward_prefetch and set_modules_to_backward_prefetch, the gathers of the next two
      blocks are issued before the present block's kernels.
    cost: Memory of one more gathered block. The bytes of communication stay the same.
    not_when: Communication takes longer than compute in total (order does not change that), or the host is
      far ahead of the device, so that gathers are issued early already.
    shows: {exposed all-gathers: some in each block → the first one}
    no_gain: two H100s over NVLink, between 0 and 2 % slower. The host is far ahead of the device there.
    tips: [communication.fsdp-blocks]
    findings: {communication-exposed: 5, communication-gathers-late: 1}
    needs: {ranks: 2}
    proof: {latency: included}"""
    network = _blocks(weights, batches)
    blocks: list[Any] = list(network)
    for number, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[number + 1 : number + 1 + AHEAD])
        block.set_modules_to_backward_prefetch(blocks[max(0, number - AHEAD) : number][::-1])
    return _step(network, batches)
