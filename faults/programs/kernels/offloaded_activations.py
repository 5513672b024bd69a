"""Keep activations in the host's memory, with most of the device's free.

The user has taken over a setting from a smaller device. Every activation travels over the link and back,
which takes longer than computing with it.
"""

import contextlib

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-memory-headroom",
    expected=["kernels-memory-headroom"],
    forbidden=["input-pageable-copy", "input-copy-not-overlapped", "kernels-needless-recomputation"],
    allowed=["host-sync-copy"],
    share=[0.5, 0.7, 0.85],
    why=(
        "an activation of 67 MB takes 1.2 ms each way at 55 GB/s; 2, 4, 8 of the layers' 16 in a step of "
        "10 ms"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch, depth = options.size(4096, 32), options.size(8192, 16), options.size(8, 8)
    offloaded = options.by(2, 4, 8) if options.faulty else 0
    model = tower(width, depth).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        away = torch.autograd.graph.save_on_cpu(pin_memory=options.cuda)
        with away if offloaded else contextlib.nullcontext():
            x = model[: 2 * offloaded](values)
        loss = F.cross_entropy(model[2 * offloaded :](x), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
