"""Leave attention over a cache that grows to cuDNN.

The user believes that cuDNN is the fastest there is. So it is, once it has built a plan for the shape, which
takes tens of milliseconds: for each length of the cache, so for each token. Flash attention needs none.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from faults.common import Fault, start

FAULT = Fault(
    kind="host-autotuning",
    expected=["host-autotuning"],
    forbidden=["host-python", "host-compiling-in-steps", "kernels-kv-cache-concat"],
    allowed=["host-launch-bound", "kernels-weight-bound-decode"],
    share=[0.85, 0.9, 0.95],
    why=(
        "a plan took 38 ms in generate on an H200, beside a few ms of a step: one for two tokens, one for "
        "each, and two for each where half of the layers see a part of the cache"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Layer(nn.Module):
    def __init__(self, width, heads, past, most, seen_by):
        super().__init__()
        self.heads, self.seen, self.seen_by = heads, past.shape[2], seen_by
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        for name in ("keys", "values"):
            total = past.new_zeros(*past.shape[:2], most, past.shape[3])
            total[:, :, : self.seen] = past
            self.register_buffer(name, total)

    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, 1, -1).unbind(1)
        self.keys[:, :, self.seen : self.seen + 1], self.values[:, :, self.seen : self.seen + 1] = k, v
        self.seen += 1
        part = self.seen_by(self.seen)
        y = F.scaled_dot_product_attention(q, self.keys[:, :, part], self.values[:, :, part])
        return self.out(y.reshape(x.shape))


def every(token):
    return lambda seen: slice(0, -(-seen // token) * token)


def later_half(seen):
    return slice(seen // 2, seen)


@torch.no_grad()
def main(options):
    width, heads, batch = options.size(2048, 32), options.size(16, 2), options.size(32, 2)
    length, count = options.size(1024, 16), options.size(12, 2)
    past = options.normal(batch, heads, length, width // heads)
    kinds = options.by([every(2)] * 2, [every(1)] * 2, [every(1), later_half])
    layers = (Layer(width, heads, past, length + 2 * options.steps, kinds[n % 2]) for n in range(count))
    model = nn.Sequential(*layers).to(options.device, options.dtype)
    x = options.normal(batch, width)
    chosen = SDPBackend.CUDNN_ATTENTION if options.faulty else SDPBackend.FLASH_ATTENTION
    with sdpa_kernel([chosen, SDPBackend.MATH], set_priority=True):
        for _ in options.laps():
            y = model(x)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
