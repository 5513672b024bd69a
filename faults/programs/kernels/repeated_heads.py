"""Repeat keys and values for each head of queries before attention.

The user believes that `repeat_interleave` is a view, as `expand` is. It copies the cache for every layer and
every token, as often as a group has heads of queries. Attention can share the heads of a group instead.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-repeated-heads",
    expected=["kernels-repeated-heads"],
    forbidden=["kernels-kv-cache-concat", "kernels-transposes", "kernels-math-attention"],
    allowed=["host-launch-bound", "kernels-weight-bound-decode", "framework-not-compiled"],
    share=[0.4, 0.6, 0.7],
    why="a layer reads 2 x 32, 64, 128 MB and writes eight times as much, which attention then reads again",
    needs={"gpu": True},
    agree=1e-2,
)
GROUP = 8


class Layer(nn.Module):
    def __init__(self, width, past, faulty):
        super().__init__()
        self.faulty = faulty
        self.queries, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.register_buffer("keys", past)
        self.register_buffer("values", past.flip(2))

    def forward(self, x):
        batch, heads, _, size = self.keys.shape
        q = self.queries(x).view(batch, heads * GROUP, 1, size)
        k, v = self.keys, self.values
        if self.faulty:
            k, v = (each.repeat_interleave(GROUP, dim=1) for each in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, enable_gqa=not self.faulty).reshape(x.shape))


@torch.no_grad()
def main(options):
    width, batch = options.size(4096, 128), options.size(options.by(16, 32, 64), 4)
    heads, length = options.size(4, 2), options.size(2048, 512)
    past = options.normal(batch, heads, length, width // heads // GROUP)
    layers = nn.Sequential(*(Layer(width, past, options.faulty) for _ in range(options.size(8, 2))))
    layers.to(options.device, options.dtype)
    x = options.normal(batch, width)
    for _ in options.laps():
        result = layers(x)
    return result.float().square().mean()


if __name__ == "__main__":
    start(main)
