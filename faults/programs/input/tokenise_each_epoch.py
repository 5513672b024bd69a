"""Train a language model on text that is split into tokens when it is loaded.

The user believes that splitting text is cheap. It is done anew for every sample of every epoch, with a
regular expression and a dictionary, in too slow a language for it; a file of token numbers made once is read
at no cost.
"""

import random
import re

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

from faults.common import Fault, epochs, prefetched, start, tower

FAULT = Fault(
    kind="input-slow-transform",
    expected=["input-slow-transform"],
    forbidden=["input-slow-decode", "input-storage-bound", "input-collate"],
    allowed=["input-too-few-workers"],
    share=[0.3, 0.6, 0.8],
    why=(
        "4,096 words take about 1 ms to split, and again for every pass; 8 workers make 32 samples in 4 "
        "ms a pass"
    ),
    needs={"gpu": True, "cores": 10},
    agree=1e-3,
)
WORDS = [f"word{number}" for number in range(1000)]


class Text(Dataset):
    def __init__(self, length, passes):
        chance = random.Random(0)
        self.texts = [" ".join(chance.choices(WORDS, k=length)) for _ in range(32)]
        self.numbers = {word: number for number, word in enumerate(WORDS)}
        self.tokens = [self.split(text) for text in self.texts]
        self.passes = passes

    def split(self, text):
        return np.array([self.numbers.get(word, 0) for word in re.findall(r"\w+|[^\w\s]", text)])

    def __len__(self):
        return 1 << 16

    def __getitem__(self, index):
        index %= len(self.texts)
        for _ in range(self.passes):  # lower case, then sub-words, then special tokens
            tokens = self.split(self.texts[index])
        return torch.from_numpy(tokens if self.passes else self.tokens[index])


def main(options):
    data = Text(options.size(4096, 64), options.by(3, 6, 12) if options.faulty else 0)
    loader = DataLoader(
        data,
        options.size(32, 2),
        num_workers=options.size(8, 1),
        pin_memory=options.cuda,
        persistent_workers=True,
        collate_fn=lambda samples: (torch.stack(samples),),
    )
    width = options.size(1024, 32)
    model = nn.Sequential(nn.Embedding(len(WORDS), width), *tower(width, options.size(6, 1), 64))
    model.to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5, fused=True)
    for (tokens,) in options.laps(prefetched(epochs(loader), options.device)):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten() % 64)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
