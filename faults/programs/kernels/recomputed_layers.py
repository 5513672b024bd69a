"""Recompute every layer in the backward pass, on a device that is nearly empty.

The user believes that checkpointing is good practice. It trades time for memory of which there is plenty.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint

from faults.common import Fault, start, tower

FAULT = Fault(
    kind="kernels-needless-recomputation",
    expected=["kernels-needless-recomputation"],
    forbidden=["kernels-memory-headroom", "host-launch-bound", "kernels-batch-too-small"],
    share=[0.07, 0.14, 0.24],
    why="a forward pass again is a quarter of the products of a step; for a quarter, half, all of the layers",
    needs={"gpu": True},
    agree=1e-3,
)


class Net(nn.Module):
    def __init__(self, layers, again):
        super().__init__()
        self.layers, self.again = nn.ModuleList(layers), again

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            again = place < self.again
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        return x


def main(options):
    width, batch, depth = options.size(4096, 32), options.size(8192, 16), options.size(8, 4)
    again = depth * options.by(1, 2, 4) // 4 if options.faulty else 0
    layers = [nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU()) for _ in range(depth)]
    model = nn.Sequential(Net(layers, again), tower(width, 0)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, width), options.choices(64, batch)
    for _ in options.laps():
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
