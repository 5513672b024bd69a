"""Save a checkpoint of all ranks while training goes on.

    fathom lab run async-checkpoint

blocking_save waits until the files are written. async_checkpoint copies the state to host memory, and a
thread writes it while the next steps run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import checkpoint

from fathom.lab import Draw

STEPS = 20  # of training, between two checkpoints
Step = Callable[[], Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    """Return the state of every rank, and the matrix of its training steps."""
    draw = Draw(seed, device)
    width = draw.size(gpu=8192, cpu=256)
    state = draw.normal(dist.get_world_size(), draw.size(gpu=1, cpu=2), width, width)
    return state, draw.normal(width, width, scale=width**-0.5)


def reference(state: Tensor, weight: Tensor) -> Step:
    """Train without a checkpoint."""
    return _training(state, weight, lambda _: None)


def _training(state: Tensor, weight: Tensor, save: Callable[[dict[str, Any]], None]) -> Step:
    rank = dist.get_rank()
    saved = {f"rank {rank}": state[rank].clone()}

    def step() -> Tensor:
        save(saved)
        x = weight
        for _ in range(STEPS):
            x = torch.tanh(x @ weight)
        return x

    return step


def _place() -> tuple[checkpoint.FileSystemWriter, Any]:
    """Return a writer to a folder that all ranks share, and a group for its messages.

    Each form has its own group, since a thread may still write for the other form.
    """
    group = dist.new_group(backend="gloo")
    names = [tempfile.mkdtemp(prefix="fathom-checkpoint-") if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(names, 0, group)
    return checkpoint.FileSystemWriter(names[0], overwrite=True), group


def blocking_save(state: Tensor, weight: Tensor) -> Step:
    writer, group = _place()
    return _training(
        state, weight, lambda saved: checkpoint.save(saved, storage_writer=writer, process_group=group)
    )


def async_checkpoint(state: Tensor, weight: Tensor) -> Step:
    """title: Write checkpoints while training goes on
    pair: {group: ranks, plain: blocking_save}
    saves: time in which all GPUs wait for storage
    idea: torch.distributed.checkpoint.async_save copies the state to host memory and returns. A thread
      writes the files during the next steps. Before the next checkpoint, the program waits for the last
      one.
    cost: Host memory for a copy of the state, and a thread that takes time from Python between steps.
    not_when: Checkpoints take longer to write than the steps between them, or host memory has no room for a
      copy.
    shows: {pause of training for a checkpoint: the time to write it → the time to copy it to the host}
    tips: [communication.async-checkpoints]
    no_finding: a pause for a checkpoint of several ranks is found as slow steps, whose remedy depends on
      the program.
    needs: {ranks: 2}
    proof: {latency: included}"""
    # https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
    writer, group = _place()
    last: list[Any] = []

    def save(saved: dict[str, Any]) -> None:
        while last:
            last.pop().result()
        last.append(checkpoint.async_save(saved, storage_writer=writer, process_group=group))

    return _training(state, weight, save)
