"""Generate tokens one at a time with a model called layer by layer.

The user believes that generation is bound by the weights. At this size the weights pass in a fraction of the
time in which the host launches ten small kernels a layer.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start

FAULT = Fault(
    kind="host-launch-bound",
    expected=["host-launch-bound"],
    forbidden=["kernels-weight-bound-decode", "kernels-kv-cache-concat", "host-sync-item"],
    # torch.compile is one way to launch less, and saves a part of what a graph does
    parts=["framework-not-compiled"],
    allowed=["kernels-batch-too-small", "kernels-unfused-elementwise"],
    share=[0.5, 0.6, 0.7],
    why="12, 24, 48 layers of ten launches at 6 us each, whose kernels take 2 to 3 us in a graph",
    needs={"gpu": True},
    agree=1e-3,
)


class Layer(nn.Module):
    def __init__(self, width, heads, length, like):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        for name in ("keys", "values"):
            self.register_buffer(name, like.new_zeros(len(like), heads, length, width // heads))

    def forward(self, x, at):
        q, k, v = self.qkv(self.norm(x)).view(len(x), 3, self.heads, 1, -1).unbind(1)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        seen = F.scaled_dot_product_attention(q, self.keys, self.values)
        x = x + self.out(seen.reshape(x.shape))
        return x + self.down(F.relu(self.up(x)))


class Model(nn.ModuleList):
    def forward(self, x, at):
        for layer in self:
            x = layer(x, at)
        return x


@torch.no_grad()
def main(options):
    width, count = options.size(1024, 32), options.size(options.by(12, 24, 48), 2)
    x = options.normal(options.size(8, 2), width)
    model = Model(Layer(width, 8, options.size(256, 16), x) for _ in range(count))
    model.to(options.device, options.dtype).eval()
    at = torch.zeros(1, dtype=torch.long, device=options.device)
    if options.cuda and not options.faulty:
        model = torch.cuda.make_graphed_callables(model, (x, at))
    for position in options.laps():
        at.fill_(position % options.size(256, 16))
        y = model(x, at)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
