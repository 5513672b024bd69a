"""Accumulate gradients over several micro-batches on several GPUs without `no_sync`.

The user believes that DistributedDataParallel reduces gradients once per step of the optimizer. It reduces
them after each backward pass.
"""

from contextlib import nullcontext

from torch.nn import functional as F  # noqa: N812
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from faults.common import Fault, start, tower
from faults.ranks import joined

FAULT = Fault(
    kind="communication-repeated-in-accumulation",
    expected=["communication-repeated-in-accumulation"],
    forbidden=["communication-small-messages", "communication-straggler"],
    allowed=["communication-exposed"],
    share=[0.06, 0.12, 0.2],
    why=(
        "8 micro-steps reduce 670 MB each, of which overlap leaves 0.2, 0.5, 1 ms exposed beside 3 ms of "
        "compute per micro-step; `no_sync` saves 7 of 8"
    ),
    needs={"gpu": True, "gpus": 2},
    agree=1e-2,
)
MICRO = 8


def main(options):
    with joined(options):
        width, depth = options.size(4096, 32), options.size(20, 3)
        model = DistributedDataParallel(tower(width, depth).to(options.device, options.dtype))
        optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
        batch = options.size(options.by(2048, 1024, 512), 16)
        values, classes = options.normal(batch, width), options.choices(64, batch)
        for _ in options.laps():
            for micro in range(MICRO):
                last = micro == MICRO - 1
                with nullcontext() if options.faulty or last else model.no_sync():
                    loss = F.cross_entropy(model(values), classes) / MICRO
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
