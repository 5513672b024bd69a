"""Train a speech recogniser: an encoder over log-mel features and a decoder over words, with teacher forcing.

Recordings lie in one file of 16-bit samples; workers cut 15 s out of it, and the device makes the features.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from recogniser import HOP, MELS, STACK, Recogniser, Size, add_norm, dense_masks
from stopwatch import Stopwatch, arguments
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

FAULTS = ("features", "wer", "mask", "loss", "recompute", "vocabulary")
RATE, WINDOW, FFT = 16_000, 400, 512
PAD, SMOOTHING = -100, 0.1
FULL = Size(batch=48, frames=1536, words=128, spoken=51_865, width=1024, heads=16, encoder=6, decoder=4)
SMALL = Size(batch=4, frames=64, words=16, spoken=101, width=32, heads=2, encoder=1, decoder=1)


# data


def record(file: Path, samples: int) -> Path:
    """Hiss, in parts of different loudness."""
    chance = np.random.default_rng(0)
    with file.open("wb") as out:
        for _ in range(10):
            loud = int(chance.integers(500, 10_000))
            out.write(chance.integers(-loud, loud, samples // 10, dtype=np.int16).tobytes())
    return file


def mel_filters() -> Tensor:
    """Triangles, evenly spaced in mel, of (MELS, FFT / 2 + 1)."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, MELS + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, FFT // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling))).float()


class LogMel(nn.Module):
    """Samples of (batch, time), 16 bits each, to features of (batch, frames, MELS); dithered on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filters", mel_filters())
        self.register_buffer("window", torch.hann_window(WINDOW))

    def forward(self, samples: Tensor) -> Tensor:
        waves = samples.float() / 32768
        waves = waves + 1e-3 * torch.randn_like(waves)
        waves = torch.cat([waves[:, :1], waves[:, 1:] - 0.97 * waves[:, :-1]], 1)
        spectrum = torch.stft(waves, FFT, HOP, WINDOW, self.window, return_complex=True)[..., :-1]
        power = torch.view_as_real(spectrum).square().sum(-1)
        features = (self.filters @ power).clamp_min(1e-10).log10().transpose(1, 2)
        return (features - features.mean((1, 2), keepdim=True)) / 4


class Utterances(Dataset):
    """Crops of the recordings, and the words that belong to them; `prepare` is run on each crop."""

    def __init__(self, file: Path, count: int, size: Size, prepare: LogMel | None) -> None:
        self.sound = np.memmap(file, np.int16, mode="r")
        self.count, self.size, self.prepare = count, size, prepare

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        chance, most = random.Random(index), self.size.words
        start = chance.randrange(len(self.sound) - self.size.samples)
        crop = torch.from_numpy(self.sound[start : start + self.size.samples].copy())
        if self.prepare:
            crop = self.prepare(crop[None])[0]
        text = [chance.randrange(1, self.size.spoken) for _ in range(chance.randint(7 * most // 8, most - 1))]
        rest = most - len(text) - 1
        return crop, torch.tensor([0, *text, *[0] * rest]), torch.tensor([*text, 0, *[PAD] * rest])


def smoothed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels, ignore_index=PAD, label_smoothing=SMOOTHING)


def divergence_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """From a distribution that gives the right word most, and every other one a little."""
    ignored = labels == PAD
    with torch.no_grad():
        wanted = torch.full(logits.shape, SMOOTHING / (logits.shape[1] - 1), device=logits.device)
        wanted.scatter_(1, labels.masked_fill(ignored, 0)[:, None], 1 - SMOOTHING)
    divergence = F.kl_div(logits.float().log_softmax(1), wanted, reduction="none")
    return divergence.masked_fill(ignored[:, None], 0).sum() / (~ignored).sum()


# training


def distance(said: list[int], meant: list[int]) -> int:
    """Insertions, deletions and substitutions between two texts."""
    row = list(range(len(meant) + 1))
    for i, item in enumerate(said, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(meant, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (item != other))
    return row[-1]


def word_error_rate(logits: Tensor, labels: Tensor) -> float:
    said = logits.view(*labels.shape, -1).argmax(-1).tolist()
    meant = [[word for word in text if word != PAD] for text in labels.tolist()]
    errors = sum(distance(item[: len(other)], other) for item, other in zip(said, meant, strict=True))
    return errors / sum(map(len, meant))


class Trainer:
    def __init__(self, options, size: Size) -> None:
        self.device, self.fault, self.size = options.device, options.fault, size
        self.cuda = self.device.startswith("cuda")
        normalise, self.loss_of = add_norm, smoothed_loss
        if self.cuda:
            normalise, self.loss_of = (torch.compile(f, dynamic=False) for f in (add_norm, smoothed_loss))
        if self.fault == "loss":
            self.loss_of = divergence_loss
        self.features = LogMel().to(self.device)
        self.model = Recogniser(size, size.vocabulary(self.fault), normalise).to(self.device)
        self.model.encoder.recompute = self.model.decoder.recompute = self.fault == "recompute"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=self.cuda)
        self.schedule = LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 1000))
        self.right = torch.zeros((), dtype=torch.long, device=self.device)
        self.rates: list[float] = []

    def masks(self, features: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Crops are full, so that nothing is masked but words to come, which attention knows by itself."""
        if self.fault != "mask":
            return None, None
        frames = self.size.frames // STACK
        lengths = torch.full((len(features),), frames, device=features.device)
        return dense_masks(lengths, frames, self.size.words, torch.bfloat16 if self.cuda else torch.float32)

    def loss(self, sound: Tensor, words: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss, and logits of (batch x words, vocabulary)."""
        features = sound if self.fault == "features" else self.features(sound)
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.cuda):
            logits = self.model(features, words, self.masks(features))
        return self.loss_of(logits, labels.flatten()), logits.detach()

    def warm_up(self, batch: list[Tensor]) -> None:
        """Compile before the loader starts."""
        for _ in range(3):
            self.loss(*batch)[0].backward()
            self.optimizer.zero_grad()

    def step(self, batch: list[Tensor]) -> Tensor:
        sound, words, labels = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        loss, logits = self.loss(sound, words, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        if self.fault == "wer":
            few = labels[:4]
            self.rates.append(word_error_rate(logits[: few.numel()], few))
        else:
            self.right += (logits.argmax(-1) == labels.flatten()).sum()
        return loss


def main() -> None:
    options = arguments(__doc__, FAULTS)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    size, minutes, workers = (SMALL, 0.5, 1) if options.small else (FULL, 30, 10)
    trainer, watch = Trainer(options, size), Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        file = record(Path(folder) / "sound.i16", int(60 * minutes * RATE))
        prepare = LogMel() if options.fault == "features" else None
        data = Utterances(file, options.steps * size.batch, size, prepare)
        loader = DataLoader(data, size.batch, num_workers=workers, pin_memory=trainer.cuda)
        item = data[0]
        trainer.warm_up([torch.stack([part] * size.batch).to(options.device) for part in item])
        for batch in watch.laps(loader):
            loss = trainer.step(batch)
        watch.save(options, loss)


if __name__ == "__main__":
    main()
