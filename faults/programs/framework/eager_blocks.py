"""Train a transformer's blocks as they were written, op by op.

The user believes that the library's modules are as quick as they can be. Norms, residuals, activations and
casts between the products each read and write the whole stream; the compiler makes a few passes of them.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, fused_attention, start

FAULT = Fault(
    kind="framework-not-compiled",
    expected=["framework-not-compiled"],
    forbidden=["kernels-unfused-norm", "kernels-unfused-loss", "host-graph-breaks"],
    allowed=["kernels-unfused-elementwise"],
    severity=[2],
    share=[0.16],
    why=(
        "on an H200, a quarter of this batch took 2.2 ms in norms, residuals and activations, and 1.2 "
        "compiled, beside products of 4 ms; there, the host's launches were the limit"
    ),
    needs={"gpu": True, "compile": True},
    agree=2e-2,
)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused_attention)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.silu(self.up(self.norm2(x))))


def main(options):
    width, batch = options.size(1024, 32), options.size(64, 2)
    blocks = [Block(width, options.size(16, 2)) for _ in range(options.size(4, 2))]
    head = nn.Linear(width, 64, bias=False)
    model = nn.Sequential(*blocks, head).to(options.device, options.dtype)
    backend = "inductor" if options.cuda else "eager"
    forward = model if options.faulty else torch.compile(model, backend=backend)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    length = options.size(512, 8)
    values, classes = options.normal(batch, length, width), options.choices(64, batch * length)
    for _ in options.laps():
        loss = F.cross_entropy(forward(values).flatten(0, 1), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
