"""Train a speech encoder to name the sound of each frame: convolutions over waves, then attention."""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset

# samples of an utterance, batch, width, layers and heads
SIZES = {"cpu": (8_000, 2, 64, 2, 2), "cuda": (160_000, 12, 512, 8, 8)}
SOUNDS, STRIDES, WINDOWS = 100, (5, 4, 4, 2, 2), (10, 8, 8, 4, 4)


class Utterances(Dataset):
    """Tones that change every tenth of a second, and what they are."""

    def __init__(self, count: int, samples: int) -> None:
        self.count, self.samples = count, samples

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(index)
        tones = torch.randint(SOUNDS, (self.samples // 1600 + 1,), generator=chance)
        each = tones.repeat_interleave(1600)[: self.samples]
        wave = torch.sin(torch.arange(self.samples) * (0.02 + 0.01 * each))
        return wave + 0.1 * torch.randn(self.samples, generator=chance), each


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))


class Encoder(nn.Module):
    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        counts = (1, *[width] * len(STRIDES))
        self.waves = nn.ModuleList(
            nn.Conv1d(counts[i], counts[i + 1], WINDOWS[i], STRIDES[i], WINDOWS[i] // 2)
            for i in range(len(STRIDES))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in STRIDES)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, SOUNDS)

    def forward(self, waves: Tensor) -> Tensor:
        x = waves[:, None]
        for convolution, norm in zip(self.waves, self.norms, strict=True):
            x = F.gelu(norm(convolution(x).transpose(1, 2))).transpose(1, 2)
        x = x.transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    samples, batch, width, layers, heads = SIZES[options.device]
    model = Encoder(width, layers, heads).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Utterances(options.steps * batch, samples), batch, num_workers=4)
    for waves, sounds in loader:
        waves, sounds = waves.to(options.device), sounds.to(options.device)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            said = model(waves)
            places = torch.linspace(0, samples - 1, said.shape[1], device=said.device).long()
            loss = F.cross_entropy(said.flatten(0, 1), sounds[:, places].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main()
