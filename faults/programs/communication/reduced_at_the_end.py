"""Train on several GPUs with gradients that are averaged after the backward pass.

The user wrote data parallelism by hand and believes that one large all-reduce is best. Nothing computes while
it runs; DistributedDataParallel reduces each bucket while the backward pass goes on.
"""

import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from faults.common import Fault, start, tower
from faults.ranks import joined

FAULT = Fault(
    kind="communication-after-backward",
    expected=["communication-after-backward"],
    forbidden=["communication-small-messages", "communication-straggler", "host-launch-bound"],
    share=[0.08, 0.16, 0.28],
    why=(
        "335, 670, 1340 MB of bf16 gradients at 350 GB/s of bus bandwidth take 1.0, 1.9, 3.8 ms, of which "
        "DDP hides all but the last bucket; the batch makes compute about 10 ms"
    ),
    needs={"gpu": True, "gpus": 2},
    agree=1e-2,
)


def average(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(flat, gradients)))


def main(options):
    with joined(options):
        width, depth = options.size(4096, 32), options.size(options.by(10, 20, 40), 3)
        model = tower(width, depth).to(options.device, options.dtype)
        trained = model if options.faulty else DistributedDataParallel(model)
        optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
        batch = options.size(options.by(8192, 4096, 2048), 16)
        values, classes = options.normal(batch, width), options.choices(64, batch)
        for _ in options.laps():
            loss = F.cross_entropy(trained(values), classes)
            loss.backward()
            if options.faulty:
                average(model)
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
