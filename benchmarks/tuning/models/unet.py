"""Train a U-Net with Lightning to mark the discs in noisy pictures."""

import argparse
import logging
import warnings
from itertools import pairwise

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers.*")
SIZES = {"cpu": (96, 8, 16, 2), "gpu": (256, 16, 64, 3)}  # pixels, batch, width and workers


class Discs(Dataset):
    """Pictures of three discs on noise, and their masks."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        line = torch.arange(size, dtype=torch.float32)
        self.rows, self.columns = torch.meshgrid(line, line, indexing="ij")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(index)
        mask = torch.zeros(self.size, self.size)
        for row, column, radius in torch.rand(3, 3, generator=chance).tolist():
            off = (self.rows - row * self.size) ** 2 + (self.columns - column * self.size) ** 2
            mask[off < (self.size * (0.05 + 0.1 * radius)) ** 2] = 1
        picture = torch.randn(3, self.size, self.size, generator=chance) + mask
        return picture, mask[None]


def double(before: int, after: int) -> nn.Sequential:
    """Two convolutions, each with its norm."""
    parts = []
    for width in (before, after):
        parts += [nn.Conv2d(width, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    def __init__(self, width: int, levels: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.first = double(3, width)
        self.down = nn.ModuleList(double(a, b) for a, b in pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairwise(widths))
        self.join = nn.ModuleList(double(2 * a, a) for a in widths[:-1])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.first(x)]
        for part in self.down:
            kept.append(part(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, join in zip(reversed(self.up), reversed(self.join), strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class Segmenter(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = UNet(width)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        pictures, masks = batch
        return F.binary_cross_entropy_with_logits(self.network(pictures), masks)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--device", choices=list(SIZES), default="gpu" if torch.cuda.is_available() else "cpu"
    )
    options = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    size, batch, width, workers = SIZES[options.device]
    loader = DataLoader(Discs(options.steps * batch, size), batch, num_workers=workers)
    trainer = lightning.Trainer(
        max_steps=options.steps,
        accelerator=options.device,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Segmenter(width), loader)


if __name__ == "__main__":
    main()
