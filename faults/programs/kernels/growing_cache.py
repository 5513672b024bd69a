"""Append keys and values to the cache with `torch.cat`.

The user believes that appending adds a little. It copies the whole cache, for every layer and every token,
and asks for new memory each time, for which what was freed is too small: on an H200 17 and 72 GB came to be
reserved for caches of 4 and 8. A cache of full length is written in place. Attention is flash's in both
forms: cuDNN's makes a new plan for every length, which would hide the copies.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-kv-cache-concat",
    expected=["kernels-kv-cache-concat"],
    forbidden=["kernels-transposes", "kernels-weight-bound-decode"],
    allowed=["host-launch-bound", "host-cuda-malloc", "host-fragmentation"],
    share=[0.3, 0.45, 0.55],
    why=(
        "a layer copies 2 x 64, 128, 256 MB (read and write), 0.06 to 0.25 ms, beside attention that "
        "reads it once"
    ),
    needs={"gpu": True},
    agree=1e-2,
)


class Layer(nn.Module):
    def __init__(self, width, heads, past, most, faulty):
        super().__init__()
        self.heads, self.faulty, self.seen = heads, faulty, past.shape[2]
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        length = self.seen if faulty else most
        for name in ("keys", "values"):
            total = past.new_zeros(*past.shape[:2], length, past.shape[3])
            total[:, :, : self.seen] = past
            self.register_buffer(name, total)

    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, 1, -1).unbind(1)
        self.seen += 1
        if self.faulty:
            self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        else:
            self.keys[:, :, self.seen - 1 : self.seen] = k
            self.values[:, :, self.seen - 1 : self.seen] = v
        seen = self.keys[:, :, : self.seen], self.values[:, :, : self.seen]
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return self.out(F.scaled_dot_product_attention(q, *seen).reshape(x.shape))


@torch.no_grad()
def main(options):
    width, heads, batch = options.size(2048, 32), options.size(16, 2), options.size(options.by(16, 32, 64), 2)
    length = options.size(1024, 16)
    past = options.normal(batch, heads, length, width // heads)
    layers = (
        Layer(width, heads, past, length + options.steps, options.faulty) for _ in range(options.size(12, 2))
    )
    model = nn.Sequential(*layers).to(options.device, options.dtype)
    x = options.normal(batch, width)
    for _ in options.laps():
        y = model(x)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
