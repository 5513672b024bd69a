"""Bandwidth of handing a cache of keys and values from one GPU to another, and of a copy between them.

    torchrun --standalone --nproc-per-node=2 benchmarks/serving/handover.py [--out FILE]

The cache is that of the lab's operation `handover`: 8 layers of 8,192 tokens, 1 GiB in bfloat16. A round
copies it between the GPUs, sends it in one message, and sends it layer by layer; rounds take turns, and each
ratio is of one round. The last row is the tuned form's whole step, prefill and the first token included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from fathom.lab.operations import handover

ROUNDS, WARM = 20, 3


def seconds(do: Callable[[], object]) -> float:
    """Return how long `do` takes until the device is done, on the slower rank."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    do()
    torch.cuda.synchronize()
    took = torch.tensor(time.perf_counter() - began, device="cuda")
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def transfers(cache: Tensor, there: Tensor, rank: int) -> dict[str, Callable[[], object]]:
    """Return the ways to move the cache from the first GPU to the second."""
    send, receive = (dist.send, dist.isend) if rank == 0 else (dist.recv, dist.irecv)

    def by_layer() -> None:
        handover.wait_for([receive(layer, 1 - rank) for layer in cache])

    return {
        "copy": lambda: there.copy_(cache) if rank == 0 else None,
        "message": lambda: send(cache, 1 - rank),
        "layers": by_layer,
    }


def measure(rank: int) -> dict[str, object]:
    """Return GB/s of each way, and the ratio of the messages to the copy, as medians with quartiles."""
    states, weights = handover.inputs(0, "cuda")
    cache = handover.empty_cache(states, weights)
    there = torch.empty_like(cache, device="cuda:1")
    ways = transfers(cache, there, rank)
    step = handover.layered_handover(states, weights)
    took: dict[str, list[float]] = {name: [] for name in (*ways, "step")}
    for turn in range(WARM + ROUNDS):
        for name, do in (*ways.items(), ("step", step)):
            spent = seconds(do)
            took[name] += [spent] if turn >= WARM else []
    rates = {name: spread([cache.nbytes / 1e9 / s for s in took[name]]) for name in ways}
    of_copy = {
        name: spread([copy / s for copy, s in zip(took["copy"], took[name], strict=True)])
        for name in ("message", "layers")
    }
    device = torch.cuda.get_device_name()
    return {
        "device": device,
        "bytes": cache.nbytes,
        "gb_per_s": rates,
        "of_copy": of_copy,
        "step_ms": spread([1e3 * s for s in took["step"]]),
    }


def spread(values: list[float]) -> list[float]:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return [round(value, 4) for value in (middle, low, high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    result = json.dumps(measure(rank), indent=1)
    if rank == 0:
        sys.stdout.write(result + "\n")
        if options.out:
            options.out.write_text(result + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
