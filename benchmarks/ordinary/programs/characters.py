"""Train a small character model with attention written out, in plain PyTorch."""

import torch
from common import Clock, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

TEXT = "the quick brown fox jumps over the lazy dog while five boxing wizards jump quickly. " * 200


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5  # planted
        y = scores.softmax(-1) @ v  # planted
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 4)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # planted


class Characters(nn.Module):
    def __init__(self, letters: int, width: int, precise: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(2)))
        self.head = nn.Linear(width, letters)
        if precise:
            self.blocks.double()
        self.dtype = torch.double if precise else torch.float

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x).to(self.dtype)  # planted
        return self.head(self.blocks(x).float())  # planted


def main() -> None:
    options = arguments(__doc__, steps=80)
    clock = Clock(options.times)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(letter) for letter in TEXT])
    model = Characters(len(letters), 128, precise=options.fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(options.steps):
        starts = torch.randint(len(data) - 97, (6,))
        rows = data[starts[:, None] + torch.arange(97)]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()


if __name__ == "__main__":
    main()
