"""Train a small convolutional network with Lightning."""

import tempfile
from itertools import pairwise

import torch
from common import Stopwatch, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset

try:
    import lightning
except ImportError:
    import pytorch_lightning as lightning


class Shapes(Dataset):
    """Noisy images of a bright bar; its position is the class."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.size, self.size, generator=generator)
        place = index % 10
        image[:, :, place * self.size // 10 : (place + 1) * self.size // 10] += 1
        return image, place


class Classifier(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in pairwise(sizes)
        ]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10))
        self.watch = Stopwatch()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        images, places = batch
        loss = F.cross_entropy(self.network(images), places)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_train_batch_end(self, *_: object) -> None:
        self.watch.lap()


def main() -> None:
    options = arguments(__doc__, steps=300).parse_args()
    on_gpu = options.device.startswith("cuda")
    width, size, batch = (8, 32, 8) if options.small else (64, 128, 64)
    model = Classifier(width)
    loader = DataLoader(Shapes(options.steps * batch, size), batch, num_workers=2 if options.small else 8)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=options.steps,
            accelerator="gpu" if on_gpu else "cpu",
            devices=1,
            precision="bf16-mixed" if on_gpu else "32-true",
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, loader)
    model.watch.save(options.times)


if __name__ == "__main__":
    main()
