"""Divide the width among heads without looking at the quotient.

The user believes that any head size is fine. Attention kernels are made for multiples of eight, and fastest
for 64 and 128; another size is padded and copied first, and its tiles are partly empty.
"""

from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Attention, Fault, fused_attention, start

FAULT = Fault(
    kind="numbers-head-size",
    expected=["numbers-head-size"],
    forbidden=["kernels-math-attention", "kernels-materialised-mask", "kernels-transposes"],
    # not compiled: compiled, gradients of queries, keys and values are joined and put in order at once
    allowed=["framework-not-compiled", "kernels-tensor-cores-idle", "numbers-odd-size"],
    share=[0.15, 0.25, 0.35],
    why="heads of 132, 100, 66 are padded to 136, 104, 72, copied, and run in tiles for 256, 128, 128",
    needs={"gpu": True},
)


def main(options):
    head = options.size(options.by(132, 100, 66), 6)
    if not options.faulty:
        head = options.size(options.by(128, 96, 64), 8)
    heads, length, batch = options.size(16, 2), options.size(4096, 16), options.size(4, 2)
    width = heads * head
    layers = [Attention(width, heads, fused_attention) for _ in range(options.size(4, 1))]
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
