"""Generate for 256 requests at a time, with a cache of full length and the layers in a CUDA graph."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start

FAULT = Fault(
    kind=None,
    severity=[2],
    allowed=["kernels-weight-bound-decode"],
    why="attention reads the caches once, products the weights once, for all requests",
    needs={"gpu": True},
)


class Layer(nn.Module):
    def __init__(self, width, heads, length, like):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, like.new_zeros(len(like), heads, length, width // heads))

    def forward(self, x, at):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, 1, -1).unbind(1)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        return self.out(F.scaled_dot_product_attention(q, self.keys, self.values).reshape(x.shape))


class Model(nn.ModuleList):
    def forward(self, x, at):
        for layer in self:
            x = layer(x, at)
        return x


@torch.no_grad()
def main(options):
    width, length = options.size(4096, 32), options.size(512, 8)
    x = options.normal(options.size(256, 2), width)
    model = Model(Layer(width, options.size(32, 2), length, x) for _ in range(options.size(8, 2)))
    model.to(options.device, options.dtype).eval()
    at = torch.zeros(1, dtype=torch.long, device=options.device)
    if options.cuda:
        model = torch.cuda.make_graphed_callables(model, (x, at))
    for position in options.laps():
        at.fill_(position % length)
        y = model(x, at)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
