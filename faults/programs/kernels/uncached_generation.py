"""Generate tokens without a cache of keys and values.

The user believes that each step computes one token. Each computes the prompt and all tokens so far again,
and the earlier ones give the same keys and values as before.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from faults.common import Fault, start

FAULT = Fault(
    kind="kernels-no-kv-cache",
    expected=["kernels-no-kv-cache"],
    forbidden=["kernels-kv-cache-concat", "numbers-odd-size", "kernels-weight-bound-decode"],
    allowed=["host-launch-bound", "framework-not-compiled", "kernels-unfused-norm"],
    share=[0.5, 0.7, 0.8],
    why="8, 16, 32 sequences of over 512 tokens: 10 to 40 ms of products, instead of a launch-bound step",
    needs={"gpu": True},
    agree=1e-2,
)
HEAD = 64
FLASH = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # cuDNN would build a plan for each length


class Layer(nn.Module):
    def __init__(self, width, samples, most):
        super().__init__()
        self.heads = width // min(HEAD, width)
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.expand = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("cache", torch.zeros(2, samples, self.heads, most, width // self.heads))

    def forward(self, x, seen):
        samples, tokens, _ = x.shape
        qkv = self.qkv(self.norm(x)).view(samples, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.cache[:, :, :, seen : seen + tokens] = qkv[1:]
        keys, values = self.cache[:, :, :, : seen + tokens]
        y = F.scaled_dot_product_attention(qkv[0], keys, values, is_causal=tokens > 1)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.expand(x)


class Decoder(nn.Module):
    def __init__(self, words, width, depth, samples, most):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, samples, most) for _ in range(depth))
        self.head = nn.Linear(width, words)

    def forward(self, ids, seen):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, seen)
        return self.head(x[:, -1])


@torch.no_grad()
def generated(options, cached, attention):
    samples, prompt = options.size(options.by(8, 16, 32), 2), options.size(512, 32)
    words, width, depth = options.size(32_000, 64), options.size(1024, 64), options.size(12, 2)
    model = Decoder(words, width, depth, samples, prompt + options.steps).to(options.device, options.dtype)
    ids = options.choices(words, samples, prompt)
    given, seen, total = ids, 0, 0.0
    with sdpa_kernel(attention, set_priority=True):
        for _ in options.laps():
            scores = model(given, seen)
            ids = torch.cat((ids, scores.argmax(1, keepdim=True)), 1)
            if cached:
                given, seen = ids[:, -1:], ids.shape[1] - 1
            else:
                given = ids
            total = total + scores.float().square().mean()
    return total / options.steps


def main(options):
    return generated(options, not options.faulty, FLASH)


if __name__ == "__main__":
    start(main)
