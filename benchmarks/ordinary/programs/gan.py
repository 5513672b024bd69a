"""Train a GAN on pictures of discs, with an optimizer for each of its halves."""

import gc

import torch
from common import Clock, arguments
from loading import loader_of
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

SIZE = 16
NOISE = 32


def discs(count: int) -> Tensor:
    """Pictures of one filled disc each."""
    axis = torch.linspace(-1, 1, SIZE)
    x, y, r = torch.rand(3, count, 1, 1) * 0.8
    return ((axis - x) ** 2 + (axis[:, None] - y) ** 2 < (r / 2 + 0.2) ** 2).float()[:, None] * 2 - 1


def generator(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Linear(NOISE, 2 * width * 16),
        nn.Unflatten(1, (2 * width, 4, 4)),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def discriminator(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 1),
    )


def main() -> None:
    options = arguments(__doc__, steps=60)
    clock, make, judge = Clock(options.times), generator(), discriminator()
    makes = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loader = loader_of(options, 64, discs(4096))
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)  # words: ok
    done = 0
    while done < options.steps:
        for (real,) in loader:
            fake = make(torch.randn(len(real), NOISE))
            judged = F.binary_cross_entropy_with_logits(judge(real), ones)
            judged = judged + F.binary_cross_entropy_with_logits(judge(fake.detach()), zeros)
            judges.zero_grad()
            judged.backward()
            judges.step()
            made = F.binary_cross_entropy_with_logits(judge(fake), ones)
            makes.zero_grad()
            made.backward()
            makes.step()
            if options.fault:
                gc.collect()  # planted
            clock.tick()
            done += 1
            if done == options.steps:
                break


if __name__ == "__main__":
    main()
