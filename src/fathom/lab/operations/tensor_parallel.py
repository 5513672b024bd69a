"""Compute a gated MLP whose weights are split between ranks.

    fathom lab run sequence-parallel async-tensor-parallel

reduced_everywhere keeps whole activations on each rank and normalises them there, sequence_parallel one
part of the sequence. async_tensor_parallel splits the products, so that their parts travel while the rest
is computed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

Step = Callable[[], Tensor]
Numbers = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Numbers:
    """Return activations, and the weights of both products, equal on all ranks."""
    draw = Draw(seed, device)
    rows, width, inner = (
        draw.size(gpu=8192, cpu=32),
        draw.size(gpu=4096, cpu=32),
        draw.size(gpu=16384, cpu=64),
    )
    up = draw.normal(width, inner, dtype=draw.dtype, scale=width**-0.5)
    down = draw.normal(inner, width, dtype=draw.dtype, scale=inner**-0.5)
    return draw.normal(rows, width, dtype=draw.dtype), up, down


def _mine(values: Tensor, dim: int) -> Tensor:
    return values.chunk(dist.get_world_size(), dim)[dist.get_rank()].contiguous()


def _normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def reference(x: Tensor, up: Tensor, down: Tensor) -> Step:
    """Compute all of it on each rank, and return this rank's part of the sequence."""
    return lambda: _mine(_normalised(x + F.gelu(_normalised(x) @ up) @ down), 0)


@torch.no_grad()
def reduced_everywhere(x: Tensor, up: Tensor, down: Tensor) -> Step:
    up, down = _mine(up, 1), _mine(down, 0)

    def step() -> Tensor:
        with torch.no_grad():
            partial = F.gelu(_normalised(x) @ up) @ down
            dist.all_reduce(partial)
            return _mine(_normalised(x + partial), 0)

    return step


def sequence_parallel(x: Tensor, up: Tensor, down: Tensor) -> Step:
    """title: Split the sequence between the products of tensor parallelism
    pair: {group: ranks, plain: reduced_everywhere}
    saves: repeated normalisation and activations, on every rank
    idea: Tensor parallelism alone computes norms, residuals and dropout in full on every rank. An
      all-reduce is a reduce-scatter plus an all-gather. Between the two, each rank has one part of the
      sequence, and computes these only for that part.
    cost: The same bytes of communication, as two collectives instead of one. Norms and residuals, and the
      activations that they save for the backward pass, fall to 1/n on n ranks.
    not_when: The sequence is short (decoding), so that a second collective's latency costs more than the
      norms.
    shows:
      collectives per block: one all-reduce → one all-gather and one reduce-scatter
      bytes of norms and residuals on a rank: all → 1/n
    tips: [communication.sequence-parallel]
    no_finding: which part of a step is repeated on all ranks is not visible in a recording.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023
    mine, up, down = _mine(x, 0), _mine(up, 1), _mine(down, 0)
    gathered, part = torch.empty_like(x), torch.empty_like(mine)

    def step() -> Tensor:
        with torch.no_grad():
            dist.all_gather_into_tensor(gathered, _normalised(mine))
            dist.reduce_scatter_tensor(part, F.gelu(gathered @ up) @ down)
            return _normalised(mine + part)

    return step


def async_tensor_parallel(x: Tensor, up: Tensor, down: Tensor) -> Step:
    """title: Overlap tensor-parallel collectives with their products
    pair: {group: ranks, plain: sequence_parallel}
    saves: exposed communication between the products of a block
    idea: The all-gather before a product and the reduce-scatter after it are split into one part per rank.
      Parts are copied directly between GPUs through symmetric memory, while the product of another part
      runs.
    cost: Products of smaller parts, which use the GPU less well, and buffers in symmetric memory of the
      size of the activations.
    not_when: GPUs are not connected by NVLink, or parts are so small that their products leave
      multiprocessors idle.
    shows: {exposed communication per block: an all-gather and a reduce-scatter → the first part}
    tips: [communication.async-tensor-parallel]
    findings: {communication-exposed: 10}
    needs: {ranks: 2, gpu: true, capability: 8.0}
    proof: {latency: included}"""
    # Only on a GPU: symmetric memory maps GPUs of one host into each other, over NVLink.
    # https://discuss.pytorch.org/t/distributed-w-torchtitan-introducing-async-tensor-parallelism-in-pytorch/209487
    from torch.distributed import _symmetric_memory as symmetric

    name = dist.group.WORLD.group_name
    symmetric.enable_symm_mem_for_group(name)
    mine, up, down = _mine(x, 0), _mine(up, 1), _mine(down, 0)
    operations = torch.ops.symm_mem

    def step() -> Tensor:
        with torch.no_grad():
            _, (inner,) = operations.fused_all_gather_matmul(_normalised(mine), [up], 0, name)
            part = operations.fused_matmul_reduce_scatter(F.gelu(inner), down, "sum", 0, name)
            return _normalised(mine + part)

    return step
