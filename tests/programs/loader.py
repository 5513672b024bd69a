"""Training from a DataLoader: `loader.py WORKERS [fork|spawn|forkserver] [EPOCHS] [KIND]`.

KIND is map, iterable, module or threaded.
"""

import sys

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((4,), float(index)), torch.tensor([float(index) ** 2])


class Doubled(Squares):
    """Prepared by a module, as by transforms of images and sound."""

    transform = torch.nn.Upsample(scale_factor=2)

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return self.transform(inputs[None, None, :2])[0, 0], target


class Threaded(Squares):
    """Of its workers the first computes with three threads."""

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info().id == 0:
            torch.set_num_threads(3)
        return super().__getitem__(index)


class Stream(IterableDataset):
    def __iter__(self):
        yield from (Squares()[index] for index in range(32))


def main():
    workers, start, epochs, kind = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    context = None if workers == 0 else start
    data = {"map": Squares, "iterable": Stream, "module": Doubled, "threaded": Threaded}[kind]()
    persistent = workers > 0
    loader = DataLoader(
        data, 4, num_workers=workers, multiprocessing_context=context, persistent_workers=persistent
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
