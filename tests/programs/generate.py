"""Prefill and decode with a cache, as language models do: `generate.py PROMPTS NEW_TOKENS`."""

import sys

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50)

    def forward(self, input_ids, past_key_values=None, use_cache=True):
        hidden = self.tokens(input_ids)
        past = hidden if past_key_values is None else torch.cat([past_key_values, hidden], dim=1)
        return self.head(past.mean(dim=1)), past


model = Model().eval()
with torch.inference_mode():
    for _ in range(int(sys.argv[1])):
        ids, past = torch.randint(0, 50, (2, 7)), None
        for _ in range(int(sys.argv[2])):
            logits, past = model(input_ids=ids, past_key_values=past, use_cache=True)
            ids = logits.argmax(-1, keepdim=True)
