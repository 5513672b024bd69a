"""Generate tokens: `generating.py prefix|cache|sorted|batches|cached-batches STEPS`.

With `prefix` a step computes all tokens so far, with `cache` only the last one. `batches` generates several
tokens a step. `sorted` evaluates batches of independent sequences, each two tokens longer.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import fathom

PROMPT, TOKENS, WORDS, WIDTH = 6, 16, 50, 16


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.expand, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)
        self.cache = None

    def forward(self, ids, more=False):
        x = self.embed(ids)
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        if more:
            k, v = (torch.cat(pair, 2) for pair in zip(self.cache, (k, v), strict=True))
        self.cache = k, v
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=not more).squeeze(1)
        return self.head(self.expand(x)[:, -1])


def generate(model, count, cached):
    ids = given = torch.zeros(3, PROMPT, dtype=torch.long)
    for number in range(count):
        chosen = model(given, cached and number > 0).argmax(-1, keepdim=True)
        ids = torch.cat((ids, chosen), 1)
        given = chosen if cached else ids


how, steps = sys.argv[1], int(sys.argv[2])
model = Decoder().eval()
with torch.no_grad():
    if how == "sorted":
        for number in range(steps):
            model(torch.zeros(3, PROMPT + 2 * number, dtype=torch.long))
    elif how in ("prefix", "cache"):
        generate(model, steps, how == "cache")
    else:
        for _ in range(steps):
            fathom.step()
            generate(model, TOKENS, how == "cached-batches")
