"""Add up a small tensor over all ranks, as tensor-parallel decoding does twice per layer.

    fathom lab run one-shot-all-reduce

through_nccl calls the library's all-reduce. one_shot_all_reduce reads the other GPUs' memory in one kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from fathom.lab import Draw

CALLS = 64  # of one step, as in the layers of a model
Step = Callable[[], Tensor]


def inputs(seed: int, device: str | None = None) -> Tensor:
    """Return the values of every rank: one token of a wide model."""
    draw = Draw(seed, device)
    return draw.normal(dist.get_world_size(), 8192, dtype=draw.dtype)


def reference(values: Tensor) -> Step:
    """Add the values up without communication."""
    return lambda: values.sum(0)


def through_nccl(values: Tensor) -> Step:
    mine, buffer = values[dist.get_rank()], torch.empty_like(values[0])

    def step() -> Tensor:
        for _ in range(CALLS):
            buffer.copy_(mine)
            dist.all_reduce(buffer)
        return buffer

    return step


def one_shot_all_reduce(values: Tensor) -> Step:
    """title: Reduce small tensors in one shot through symmetric memory
    pair: {group: ranks, plain: through_nccl}
    saves: latency of small all-reduces
    idea: A ring takes 2(n-1) steps. In one shot, every rank reads the tensors of all others directly over
      NVLink and adds them up itself, in a single kernel with one synchronisation at each end.
    cost: Each rank reads n-1 times the data, instead of about twice in a ring. The tensor has to be in a
      buffer of symmetric memory.
    not_when: Messages exceed some hundred kilobytes, GPUs are not connected by NVLink, or ranks are on
      several hosts.
    shows:
      duration of an all-reduce of 16 KB: that of NCCL's kernel → a read of the peer's memory and two
        barriers
    tips: [communication.symmetric-memory]
    findings: {communication-small-messages: 1, communication-synchronous: 1,
      communication-wide-tensor-parallel: 1}
    needs: {ranks: 2, gpu: true, capability: 8.0}
    proof: {latency: included}"""
    # Only on a GPU: symmetric memory maps GPUs of one host into each other, over NVLink.
    # https://docs.pytorch.org/docs/stable/symmetric_memory.html
    from torch.distributed import _symmetric_memory as symmetric

    mine, group = values[dist.get_rank()], dist.group.WORLD
    name = group.group_name
    buffer = symmetric.empty(values.shape[1], dtype=values.dtype, device=values.device)
    symmetric.rendezvous(buffer, name)

    def step() -> Tensor:
        for _ in range(CALLS):
            buffer.copy_(mine)
            result = torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
        return result

    return step
