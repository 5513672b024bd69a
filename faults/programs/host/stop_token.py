"""Generate until every sequence has met the token that ends it.

The user believes that the check costs a comparison. Reading it holds the host until the step is done, so the
next step's first launches are never ahead of the device; checking every sixteen tokens is enough.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-item",
    expected=["host-sync-item"],
    forbidden=["host-python", "host-sync-copy", "kernels-kv-cache-concat"],
    allowed=["host-launch-bound", "kernels-weight-bound-decode"],
    share=[0.08, 0.15, 0.3],
    why=(
        "after 1, 4, 16 of 16 layers of 0.1 ms, and at the end, the host waits; each time about 40 us pass "
        "until the device has work again"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


class Checked(nn.Module):
    """Layers, and after every so many of them (None: never) a look at what came out."""

    def __init__(self, layers, every):
        super().__init__()
        self.layers, self.every = layers, every

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if self.every and place % self.every == 0 and not torch.isfinite(x).all().item():
                raise FloatingPointError(f"layer {place}")
        return x


@torch.no_grad()
def main(options):
    width, vocabulary = options.size(4096, 32), 64
    every = 2 * 16 // options.by(1, 4, 16) if options.faulty else None
    model = Checked(tower(width, 16, vocabulary), every).to(options.device, options.dtype)
    embedding = options.normal(vocabulary, width)
    tokens = options.choices(vocabulary, options.size(2048, 4))
    for number in options.laps():
        x = model(F.embedding(tokens, embedding))
        tokens = x.argmax(-1)
        if (options.faulty or number % 16 == 0) and (tokens < 0).all().item():
            break
    return x.float().square().mean()


if __name__ == "__main__":
    start(main)
