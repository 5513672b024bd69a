"""Rotate queries and keys by their positions, with slices and concatenation.

The user believes that rotary embedding is a matter of a few numbers. Written with `cat` and four products it
moves queries and keys a dozen times in float32; compiled, it reads and writes them once.
"""

import torch
from torch.nn import functional as F  # noqa: N812

from faults.common import Attention, Fault, start

FAULT = Fault(
    kind="kernels-unfused-elementwise",
    expected=["kernels-unfused-elementwise"],
    forbidden=["kernels-math-attention", "kernels-materialised-mask", "host-launch-bound"],
    allowed=["kernels-needless-casts", "kernels-transposes"],
    severity=[2],
    share=[0.4],
    why="about 14 passes over 67 M numbers, half of them in float32: 0.9 ms of 2.2 ms a layer",
    needs={"gpu": True, "compile": True},
    agree=2e-2,
)


def rotated(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    return (x.float() * cos + turned * sin).to(x.dtype)


@torch.no_grad()
def main(options):
    width, heads, length = options.size(2048, 32), options.size(16, 2), options.size(2048, 16)
    place = torch.arange(length, device=options.device)[:, None]
    rate = 1e-4 ** torch.linspace(0, 1, width // heads // 2, device=options.device)
    angle = (place * rate).repeat(1, 2)
    cos, sin = angle.cos(), angle.sin()
    rotate = torch.compile(rotated) if options.cuda and not options.faulty else rotated

    def attend(q, k, v):
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    layers = [Attention(width, heads, attend) for _ in range(options.size(4, 1))]
    model = torch.nn.Sequential(*layers).to(options.device, options.dtype)
    values = options.normal(options.size(16, 2), length, width)
    for _ in options.laps():
        y = model(values)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
