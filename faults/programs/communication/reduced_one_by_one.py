"""Train on several GPUs, and call all-reduce for each gradient.

The user believes that a loop over parameters is as good as DistributedDataParallel. Most parameters are small
norms and biases, and each pays the latency of a collective.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start
from faults.ranks import joined

FAULT = Fault(
    kind="communication-small-messages",
    expected=["communication-small-messages"],
    forbidden=["communication-straggler", "communication-wide-gradients"],
    allowed=["communication-exposed", "host-launch-bound", "framework-not-compiled"],
    parts=["communication-after-backward"],  # DistributedDataParallel, its remedy, mends both
    share=[0.2, 0.3, 0.4],
    why="100, 200, 400 small gradients at 15 us each, beside 5 ms of forward and backward pass",
    needs={"gpu": True, "gpus": 2},
    agree=1e-2,
)


def average(gradients):
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))


def average_each(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)
    torch._foreach_div_(gradients, dist.get_world_size())


def main(options):
    with joined(options):
        width, depth = options.size(1024, 32), options.size(options.by(25, 50, 100), 3)
        layers = [
            nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(depth)
        ]
        model = nn.Sequential(*layers, nn.Linear(width, 64)).to(options.device, options.dtype)
        optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
        batch = options.size(8192, 16)
        values, classes = options.normal(batch, width), options.choices(64, batch)
        for _ in options.laps():
            loss = F.cross_entropy(model(values), classes)
            loss.backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            (average_each if options.faulty else average)(gradients)
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
