"""Train from an object store, with loader workers that are spawned rather than forked."""

import time

import torch
from common import Clock, arguments
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ROUND_TRIP_S = 0.003


class Store:
    """Samples on the other side of a network; one request may ask for many."""

    def get(self, keys: list[int]) -> list[tuple[Tensor, int]]:
        time.sleep(ROUND_TRIP_S)  # planted
        return [(torch.full((64,), float(key % 10)), key % 10) for key in keys]


class OneByOne(Dataset):
    def __init__(self, count: int) -> None:
        self.count, self.store = count, Store()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.store.get([index])[0]  # planted


class Batched(OneByOne):
    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int]]:
        return self.store.get(indices)


def main() -> None:
    options = arguments(__doc__, steps=120, workers=2)
    clock = Clock(options.times)
    model = nn.Sequential(nn.Linear(64, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(
        (OneByOne if options.fault else Batched)(32 * options.steps),
        batch_size=32,
        num_workers=options.workers,
        multiprocessing_context="spawn" if options.workers else None,
    )
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.tick()


if __name__ == "__main__":
    main()
