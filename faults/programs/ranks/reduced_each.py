"""Train on several ranks, and call all-reduce for each gradient.

The user believes that a loop over parameters is as good as DistributedDataParallel.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.optim import SGD

from faults.common import Fault, start
from faults.ranks import WIDTH, joined, layers

FAULT = Fault(
    kind="communication-small-messages",
    expected=["communication-small-messages"],
    forbidden=["communication-straggler", "communication-jitter", "communication-wide-gradients"],
    share=[0.15, 0.25, 0.4],
    why="20, 40, 80 small gradients take about 0.3 ms each; the step takes about 24 ms without them",
    needs={"ranks": 2},
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
        model = layers(options)
        scales = (nn.Parameter(torch.ones_like(model[0].product.bias)) for _ in range(options.by(20, 40, 80)))
        model.scales = nn.ParameterList(scales)
        values = options.normal(8, 16, WIDTH)
        optimizer = SGD(model.parameters(), lr=1e-4)
        for _ in options.laps():
            scaled = model[:4](values) * torch.stack(list(model.scales)).mean(0)
            loss = scaled.square().mean()
            loss.backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            (average_each if options.faulty else average)(gradients)
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
