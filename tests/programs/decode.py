"""Decoding by hand, with its own cache: `decode.py PROMPTS NEW [LENGTH]`.

Every token is waited for, as by a client, so that decoding takes most of the time on any machine.
"""

import sys
import time

import torch
from torch import nn

WIDTH, HEADS, BATCH = 64, 4, 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.qkv = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down, self.head = nn.Linear(WIDTH, 256), nn.Linear(256, WIDTH), nn.Linear(WIDTH, 50)
        self.kept = None

    def forward(self, ids):
        x = self.tokens(ids)
        query, key, value = (
            part.view(*ids.shape, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        fresh = ids.shape[1] > 1
        if not fresh:
            key, value = (torch.cat(pair, 2) for pair in zip(self.kept, (key, value), strict=True))
        self.kept = key, value
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=fresh)
        x = x + seen.transpose(1, 2).reshape(*ids.shape, WIDTH)
        return self.head(x + self.down(torch.relu(self.up(x))))


prompts, new = int(sys.argv[1]), int(sys.argv[2])
length = int(sys.argv[3]) if len(sys.argv) > 3 else 256
torch.set_num_threads(1)
model = Model().eval()
with torch.inference_mode():
    for _ in range(prompts):
        ids = torch.randint(0, 50, (BATCH, length))
        for _ in range(new):
            ids = model(ids)[:, -1].argmax(-1, keepdim=True)
            time.sleep(0.002)
