"""Pad every sequence to the longest one that is allowed.

The user believes that padding is only a matter of shape. Most of the tokens that the device works on are
padding; batches of sequences of like length hold few.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, epochs, start, tower

FAULT = Fault(
    kind="input-padding",
    expected=[],
    forbidden=["input-too-few-workers", "kernels-batch-too-small"],
    known_gap="a recording holds shapes and not values, so nothing distinguishes padding from tokens",
    share=[0.3, 0.55, 0.75],
    why="products take time in proportion to tokens, of which 30, 55, 75 % are padding",
    needs={"gpu": True},
)


def main(options):
    most, batch = options.size(1024, 32), options.size(32, 4)
    mean = options.by(0.7, 0.45, 0.25)
    lengths = (
        most * torch.linspace(2 * mean - 1 if mean > 0.5 else 0.02, min(1.0, 2 * mean), 8 * batch)
    ).long()
    lengths = lengths.clamp(8, most)
    order = torch.randperm(len(lengths)) if options.faulty else torch.arange(len(lengths))
    groups = [lengths[chosen] for chosen in order.split(batch)]
    width = options.size(4096, 32)
    model = nn.Sequential(nn.Embedding(64, width), *tower(width, options.size(2, 1)))
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    shapes = [most if options.faulty else -(-int(group.max()) // 8) * 8 for group in groups]
    batches = [options.choices(64, batch, length) for length in shapes]
    for tokens in options.laps(epochs(batches)):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
