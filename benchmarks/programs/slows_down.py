"""A training loop that becomes slower at a step, for one reason.

    python slows_down.py --small --steps 2000 --at 800 --cause input --by 20

Causes: `input` (batches take longer to make), `python` (the loop does more between steps), `compute` (each
batch is larger), `none`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from common import Stopwatch, arguments
from torch import Tensor, nn

CAUSES = ("none", "input", "python", "compute")
CLASSES = 10


def spend(ms: float) -> None:
    """Keep the processor busy."""
    until = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until:
        pass


class Images(torch.utils.data.Dataset):
    """Random images. From item `slow_from` on, each batch takes `ms` longer."""

    def __init__(self, count: int, batch: int, width: int, slow_from: int, ms: float) -> None:
        self.items, self.count, self.batch = torch.randn(64, width), count, batch
        self.slow_from, self.ms = slow_from, ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= self.slow_from and index % self.batch == 0:
            time.sleep(self.ms / 1e3)  # at once, as a short sleep takes longer than asked for
        return self.items[index % 64], index % CLASSES


def batches(options, width: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    first = options.at * batch if options.cause == "input" else options.steps * batch
    data = Images(options.steps * batch, batch, width, first, options.by)
    yield from torch.utils.data.DataLoader(data, batch_size=batch)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], steps=2000)
    parser.add_argument("--at", type=int, default=800, help="step at which it becomes slower")
    parser.add_argument("--by", type=float, default=20.0, help="milliseconds per step, or factor for compute")
    parser.add_argument("--cause", choices=CAUSES, default="input")
    options = parser.parse_args()
    width, batch = (256, 32) if options.small else (4096, 512)
    layers = [nn.Linear(width, width), nn.ReLU()] * 3
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES)).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = Stopwatch()
    for step, (images, labels) in enumerate(batches(options, width, batch)):
        slow = step >= options.at
        if slow and options.cause == "python":
            spend(options.by)
        if slow and options.cause == "compute":
            images, labels = images.repeat(int(options.by), 1), labels.repeat(int(options.by))
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images.to(options.device)), labels.to(options.device))
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save(options.times)
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
