"""Train timm's ResNet-50 on pictures in the host's memory."""

import argparse

import timm
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

SIZES = {"cpu": ("resnet18", 32, 4, 64), "cuda": ("resnet50", 160, 48, 512)}  # model, pixels, batch, pictures


def pictures(count: int, size: int) -> TensorDataset:
    """Noise on ten shades, which are the labels."""
    chance = torch.Generator().manual_seed(1)
    labels = torch.randint(10, (count,), generator=chance)
    noise = torch.randint(80, (count, 3, size, size), dtype=torch.uint8, generator=chance)
    return TensorDataset(noise + (16 * labels)[:, None, None, None].to(torch.uint8), labels)


def prepared(batch: Tensor) -> Tensor:
    return (batch.float() / 255 - 0.5) / 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    name, size, batch, count = SIZES[options.device]
    model = timm.create_model(name, num_classes=10).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    data = pictures(count, size)
    places = RandomSampler(data, replacement=True, num_samples=options.steps * batch)
    for images, labels in DataLoader(data, batch, sampler=places, num_workers=2):
        images, labels = images.to(options.device), labels.to(options.device)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss = F.cross_entropy(model(prepared(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
