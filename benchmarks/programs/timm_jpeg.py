"""Train an image classifier on JPEG files, which worker processes decode."""

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import Stopwatch, arguments
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, RandomSampler

CLASSES = ("ellipse", "rectangle", "line", "arc")


def draw(folder: Path, count: int, size: int) -> list[Path]:
    """Write `count` pictures of one shape each on noise."""
    chance = random.Random(0)
    files = []
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        corners = sorted(chance.sample(range(size), 2))
        box = [corners[0], corners[0], corners[1], corners[1]]
        shape = CLASSES[number % len(CLASSES)]
        more = {"start": 0, "end": 270} if shape == "arc" else {}
        getattr(ImageDraw.Draw(image), shape)(box, fill="white", **more)
        files.append(folder / f"{shape}-{number}.jpg")
        image.save(files[-1], quality=90)
    return files


class Pictures(Dataset):
    def __init__(self, files: list[Path], size: int) -> None:
        self.files, self.size = files, size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self.files[index]
        image = Image.open(file).convert("RGB").resize((self.size, self.size))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return pixels, CLASSES.index(file.name.partition("-")[0])


def build(name: str, size: int) -> nn.Module:
    """The model from timm, else from torchvision."""
    try:
        import timm
    except ImportError:
        import torchvision

        return torchvision.models.get_model(name, num_classes=len(CLASSES))
    sized = {"img_size": size} if name.startswith("vit") else {}
    return timm.create_model(name, num_classes=len(CLASSES), **sized)


def main() -> None:
    parser = arguments(__doc__, steps=200)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    files, drawn, size, batch, workers = (24, 96, 64, 4, 1) if options.small else (512, 512, 224, 64, 8)
    model = build(options.model, size).to(options.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        data = Pictures(draw(Path(folder), files, drawn), size)
        picks = RandomSampler(data, replacement=True, num_samples=options.steps * batch)
        workers = workers if options.workers is None else options.workers
        loader = DataLoader(data, batch, sampler=picks, num_workers=workers, pin_memory=on_gpu)
        watch = Stopwatch()
        for images, labels in loader:
            images = images.to(options.device, non_blocking=True, memory_format=torch.channels_last)
            with torch.autocast(torch.device(options.device).type, torch.bfloat16, enabled=on_gpu):
                loss = F.cross_entropy(model(images), labels.to(options.device, non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.lap()
        print(f"loss {loss.item():.3f}")
    watch.save(options.times)


if __name__ == "__main__":
    main()
