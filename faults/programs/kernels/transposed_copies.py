"""Bring tensors into order with `transpose(...).contiguous()` between layers.

The user believes that each operation needs its input in one piece. Products take transposed operands as they
are; each copy moves the whole activation, forwards and backwards.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-transposes",
    expected=["kernels-transposes"],
    forbidden=["kernels-not-channels-last", "kernels-needless-casts", "kernels-uncoalesced"],
    allowed=["kernels-unfused-elementwise"],
    share=[0.15, 0.28, 0.4],
    why="a transposed copy of 34 M numbers takes about 60 us each way; 2, 4, 8 in a layer of 1.2 ms",
    needs={"gpu": True},
    agree=1e-2,
)


class Layer(nn.Module):
    def __init__(self, width, copies):
        super().__init__()
        self.linear, self.copies = nn.Linear(width, width, bias=False), copies

    def forward(self, x):
        for _ in range(self.copies // 2):
            x = x.transpose(1, 2).contiguous()  # (batch, width, length), as convolutions have it
            x = x.transpose(1, 2).contiguous()
        return F.relu(self.linear(x))


def main(options):
    width, batch, length = options.size(4096, 32), options.size(8, 2), options.size(1024, 8)
    copies = options.by(2, 4, 8) if options.faulty else 0
    layers = [Layer(width, copies) for _ in range(options.size(4, 2))]
    model = nn.Sequential(*layers, nn.Linear(width, 64, bias=False)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(batch, length, width), options.choices(64, batch * length)
    for _ in options.laps():
        loss = F.cross_entropy(model(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
