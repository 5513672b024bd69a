"""Train attention over 8,192 tokens with the fused kernel, heads of 128."""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, fused_attention, start

FAULT = Fault(
    kind=None,
    severity=[2],
    why="the fused attention and its projections are nearly all of the step",
    needs={"gpu": True},
)


def main(options):
    width, length = options.size(4096, 32), options.size(8192, 16)
    layers = [Attention(width, options.size(32, 2), fused_attention) for _ in range(options.size(2, 1))]
    model = nn.Sequential(*layers, nn.Linear(width, 64, bias=False)).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    values, classes = options.normal(options.size(2, 2), length, width), options.choices(64, 2 * length)
    for _ in options.laps():
        loss = F.cross_entropy(model(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
