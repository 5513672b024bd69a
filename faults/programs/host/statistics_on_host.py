"""Watch activations: move each layer's output to the host and take its mean there.

The user believes that watching is free. `.cpu()` waits for the layer, copies all of it over the link, and
leaves the device without work until the host is done; the mean is one number that the device could keep.
"""

import torch
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="host-sync-copy",
    expected=["host-sync-copy"],
    forbidden=["host-sync-item", "input-pageable-copy", "host-launch-bound"],
    allowed=["host-python"],
    share=[0.2, 0.35, 0.6],
    why="2, 4, 12 copies of 4 MB from pageable memory at 0.3 to 0.5 ms with their means, in steps of 3 ms",
    needs={"gpu": True},
    agree=1e-3,
)


def main(options):
    width, batch = options.size(2048, 32), options.size(8192, 16)
    model = tower(width, options.size(12, 3)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    means = []

    def watch(_, __, output):
        part = output.detach()[: batch // 8]
        means.append(part.cpu().float().mean() if options.faulty else part.mean())

    for layer in [item for item in model if isinstance(item, torch.nn.ReLU)][: options.by(2, 4, 12)]:
        layer.register_forward_hook(watch)
    for _ in options.laps():
        means.clear()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
