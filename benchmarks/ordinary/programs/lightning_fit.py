"""Train an autoencoder with Lightning and keep checkpoints."""

import logging
import tempfile
import warnings
from pathlib import Path

import lightning
import torch
from common import Clock, arguments
from loading import loader_of
from torch import Tensor, nn

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*(num_workers|does not have many workers).*")


class Autoencoder(lightning.LightningModule):
    def __init__(self, pixels: int, clock: Clock) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 512), nn.ReLU(), nn.Linear(512, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, pixels))
        self.clock = clock

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        (images,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(images)), images)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class KeepLatest(lightning.Callback):
    """Writes the newest state, so that nothing is lost when the node goes away."""

    def __init__(self, folder: str, every: int) -> None:
        self.path, self.every = Path(folder, "latest.ckpt"), every

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Autoencoder, *_: object) -> None:
        if trainer.global_step % self.every == 0:
            trainer.save_checkpoint(self.path)  # planted
        module.clock.tick()


def main() -> None:
    options = arguments(__doc__, steps=120)
    images = torch.rand(4096, 784)
    loader = loader_of(options, 256, images)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=options.steps,
            max_epochs=-1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[KeepLatest(folder, every=1 if options.fault else 1000)],
        )
        trainer.fit(Autoencoder(784, Clock(options.times)), loader)


if __name__ == "__main__":
    main()
