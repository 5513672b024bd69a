"""Loaders of tensors in memory: sample by sample, as most programs do, or a batch at a time."""

from __future__ import annotations

import argparse

from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset


class WholeBatches(TensorDataset):
    """The same samples; the loader asks for all of a batch at once, and nothing has to join them."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, ...]:
        return tuple(tensor[indices] for tensor in self.tensors)


def loader_of(
    options: argparse.Namespace, batch: int, *tensors: Tensor, sampler: Sampler | None = None
) -> DataLoader:
    """Shuffled batches of the tensors, as `options.workers` and `options.whole_batches` ask for."""
    kind = WholeBatches if options.whole_batches else TensorDataset
    return DataLoader(
        kind(*tensors),
        batch_size=batch,
        shuffle=sampler is None,
        sampler=sampler,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        collate_fn=_as_they_are if options.whole_batches else None,
    )


def _as_they_are(batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return batch
