"""Run a transformer's blocks compiled, with norms, residuals and activations fused."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Attention, Fault, fused_attention, start

FAULT = Fault(
    kind=None,
    severity=[2],
    why="the compiler fuses what lies between products; batch and length fill the chip",
    needs={"gpu": True, "compile": True},
)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads, fused_attention)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(F.layer_norm(x, x.shape[-1:]))
        return x + self.down(F.gelu(self.up(F.layer_norm(x, x.shape[-1:])), approximate="tanh"))


@torch.no_grad()
def main(options):
    width, length, batch = options.size(4096, 32), options.size(2048, 16), options.size(8, 2)
    blocks = [Block(width, options.size(32, 2)) for _ in range(options.size(2, 1))]
    model = nn.Sequential(*blocks).to(options.device, options.dtype)
    compiled = torch.compile(model, backend="inductor" if options.cuda else "eager")
    values = options.normal(batch, length, width)
    for _ in options.laps():
        y = compiled(values)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
