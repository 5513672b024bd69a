"""Generate until every sequence has met the token that ends it.

The user believes that the check costs a comparison. Reading it holds the host until the step is done, so the
next step's first launches are never ahead of the device; checking every sixteen tokens is enough.
"""

import torch
from torch.nn import functional as F  # noqa: N812

from tests.faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-item",
    expected=["host-sync-item"],
    forbidden=["host-python", "host-sync-copy", "kernels-kv-cache-concat"],
    allowed=["host-launch-bound", "kernels-weight-bound-decode"],
    share=[0.08, 0.15, 0.3],
    why=(
        "after 1, 4, 16 of 16 layers the host waits; each time about 40 us pass until the device has work "
        "again"
    ),
    needs={"gpu": True},
    agree=1e-3,
)


@torch.no_grad()
def main(options):
    width, vocabulary = options.size(4096, 32), 64
    model = tower(width, 16, vocabulary).to(options.device, options.dtype)
    embedding = options.normal(vocabulary, width)
    tokens = options.choices(vocabulary, options.size(64, 4))
    checks = options.by(1, 4, 16)
    for number in options.laps():
        x = F.embedding(tokens, embedding)
        for place, layer in enumerate(model):
            x = layer(x)
            if options.faulty and place % (2 * 16 // checks) == 0 and not torch.isfinite(x).all().item():
                raise FloatingPointError(f"layer {place}")
        tokens = x.argmax(-1)
        if (options.faulty or number % 16 == 0) and (tokens < 0).all().item():
            break
    return x.float().square().mean()


if __name__ == "__main__":
    start(main)
