"""Make batches with a DataLoader, on the host.

    fathom lab run loader-workers persistent-workers deep-queue decoded-cache shared-cache

in_process makes batches between steps, loader_workers beside them. restarting ends its workers after every
epoch, persistent_workers keeps them. two_ahead runs dry after a slow batch, deep_queue has more in advance.
decoding repeats its work in every epoch, and own_caches in every worker; decoded_cache and shared_cache keep
the result.
"""

from __future__ import annotations

import bz2
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fathom.lab import Draw

WORKERS = 2


class _Samples(Dataset[Tensor]):
    """Samples made by a function from rows of a table."""

    def __init__(self, rows: Any, make: Callable[[Any], Tensor]) -> None:
        self.rows, self.make = rows, make

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Tensor:
        return self.make(self.rows[number])


def _compressed(seed: int, samples: int, size: int, compress: Callable[[bytes], bytes]) -> list[Tensor]:
    smooth = Draw(seed, "cpu").integers(0, 8, samples, size, dtype=torch.uint8).cumsum(1).to(torch.uint8)
    packed = [compress(row.tobytes()) for row in smooth.numpy()]
    return [torch.frombuffer(bytearray(record), dtype=torch.uint8) for record in packed]


# Records that take milliseconds to decompress, as images do to decode
def records(seed: int, device: str | None = None) -> list[Tensor]:
    return _compressed(seed, 64, 1 << 19 if device is None else 1 << 14, partial(zlib.compress, level=1))


def _floats(record: Tensor) -> Tensor:
    return torch.from_numpy(_decoded(record)[::8].astype(np.float32))


def _means(records: list[Tensor], **how: Any) -> Tensor:
    batches = DataLoader(_Samples(records, _floats), batch_size=8, **how)
    return torch.cat([batch.mean(dim=1) for _ in range(4) for batch in batches])


def in_process(records: list[Tensor]) -> Tensor:
    return _means(records)


def loader_workers(records: list[Tensor]) -> Tensor:
    """title: Make samples in worker processes
    pair: {group: input, plain: in_process, inputs: records}
    saves: time in which the step waits for its batch
    idea: A loader without workers makes each batch in the training process, between two steps. Worker
      processes make the next batches meanwhile, several at a time.
    cost: Starting the processes (persistent_workers keeps them between epochs), and a copy of each batch
      through shared memory. With w workers a batch takes about 1/w of its time, as long as there are cores.
    not_when: Samples are made in microseconds (sending them costs more), or the machine has no cores to
      spare.
    shows:
      ledger, idle by input: the time to make a batch → that, less the overlap with workers
    tips: [data.workers]
    findings: {input-too-few-workers: 1, input-made-in-the-loop: 1}"""
    return _means(records, num_workers=WORKERS, persistent_workers=True)


# Short epochs
def rows(seed: int, device: str | None = None) -> Tensor:
    return Draw(seed, "cpu").normal(128, 64)


def _ordered(row: Tensor) -> Tensor:
    return row.sort().values


def _sums(persistent: bool, rows: Tensor) -> Tensor:
    samples = _Samples(rows, _ordered)
    loader = DataLoader(samples, batch_size=16, num_workers=WORKERS, persistent_workers=persistent)
    return torch.stack([torch.cat([batch.cumsum(1) for batch in loader]) for _ in range(4)]).sum(0)


restarting = partial(_sums, False)


def persistent_workers(rows: Tensor) -> Tensor:
    """title: Keep workers between epochs
    pair: {group: input, plain: restarting, inputs: rows}
    saves: the start of worker processes at every epoch
    idea: By default a loader ends its workers after an epoch and starts new ones for the next. Processes are
      forked, data sets sent to them, files opened again, and queues fill from empty. With persistent_workers
      the same processes continue with full queues.
    cost: The workers' memory between epochs. Starting costs some 10 ms per worker where processes are forked,
      and seconds where they are spawned and import the program again.
    not_when: Epochs are long, or the training process changes the data set between epochs (workers keep the
      copy they started with).
    shows:
      new worker processes at the start of an epoch: all of them → none
      steps of kind "epoch start" compared with others: many times as long → the same
    tips: [data.persistent-workers]
    findings: {input-worker-restart: 1}"""
    return _sums(True, rows)


# Batches that wait for storage, one in EVERY of them long
BATCHES, EVERY = 44, 11  # odd, so that both workers get slow batches
STEP_S, QUICK_S, SLOW_S = 2e-3, 1e-3, 24e-3  # a step of the device, and batches of a worker


def batches(seed: int, device: str | None = None) -> Tensor:
    return Draw(seed, "cpu").normal(BATCHES, 64, 64)


def _waited(numbered: tuple[int, Tensor]) -> Tensor:
    number, batch = numbered
    time.sleep(SLOW_S if number % EVERY == EVERY - 1 else QUICK_S)
    return batch


def _trained(ahead: int, batches: Tensor) -> Tensor:
    samples = _Samples(list(enumerate(batches)), _waited)
    state = torch.zeros(64, 64)
    for batch in DataLoader(samples, batch_size=None, num_workers=WORKERS, prefetch_factor=ahead):
        time.sleep(STEP_S)
        state = state + batch
    return state


two_ahead = partial(_trained, 2)


def deep_queue(batches: Tensor) -> Tensor:
    """title: Prefetch enough batches to absorb slow ones
    pair: {group: input, plain: two_ahead, inputs: batches}
    saves: time in which the step waits for a late batch
    idea: Each worker has two batches in advance. Where a few batches take many times as long as the others
      (long videos, files from slow storage), the queues run dry while one worker is busy, because batches
      arrive in order. A larger prefetch_factor lets the others work ahead.
    cost: Memory for prefetch_factor times workers batches. A queue only evens out the rate; it cannot exceed
      the workers' mean.
    not_when: All batches take about the same time, or the workers are too slow on average (use more workers,
      or less work per sample). Deep queues of large batches take much memory.
    shows:
      waits of the input table: a long one after each slow batch → short ones, if any
    tips: [data.prefetch-depth]
    no_finding: a late batch has several causes, and waits do not distinguish slow samples from slow workers.
    """
    return _trained(16, batches)


# Records that fit in memory once decoded
EPOCHS = 4


def small_records(seed: int, device: str | None = None) -> list[Tensor]:
    return _compressed(seed, 24, 1 << 15, partial(zlib.compress, level=6))


def _decoded(record: Tensor) -> np.ndarray:
    return np.frombuffer(zlib.decompress(record.numpy().tobytes()), np.uint8)


def _epoch(samples: list[np.ndarray], epoch: int) -> Tensor:
    return torch.tensor([float(sample[epoch::EPOCHS].mean()) for sample in samples])


def decoding(records: list[Tensor]) -> Tensor:
    return torch.stack([_epoch([_decoded(record) for record in records], epoch) for epoch in range(EPOCHS)])


def decoded_cache(records: list[Tensor]) -> Tensor:
    """title: Decode records once
    pair: {group: input, plain: decoding, inputs: small_records}
    saves: host time of decompressing in every epoch
    idea: Compressed records that fit in memory once decoded need to be decompressed only in the first epoch.
      Later epochs take the arrays as they are.
    cost: Memory for the decoded set in every process that has it (share it, or give each rank its part).
    not_when: The decoded set exceeds memory (store smaller images on disk, once), or augmentation starts from
      the compressed form.
    shows:
      input table, time to fetch a sample: decompression, in every epoch → decompression in the first epoch
        only
    tips: [data.decode-once]
    findings: {input-slow-decode: 1}"""
    samples = [_decoded(record) for record in records]
    return torch.stack([_epoch(samples, epoch) for epoch in range(EPOCHS)])


# Records that all workers decode
BATCH, SAMPLES, ROUNDS = 4, 36, 6


def shared_records(seed: int, device: str | None = None) -> list[Tensor]:
    return _compressed(seed, SAMPLES, 1 << 16 if device is None else 1 << 13, bz2.compress)


def _unpacked(record: Tensor) -> Tensor:
    return torch.from_numpy(np.frombuffer(bz2.decompress(record.numpy().tobytes()), np.uint8).copy())


class _Own(Dataset[Tensor]):
    """A dataset with a cache in the memory of each worker."""

    def __init__(self, records: list[Tensor]) -> None:
        self.records = records
        self.known: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Tensor:
        if number not in self.known:
            self.known[number] = _unpacked(self.records[number])
        return self.known[number][::16].float()


class _Shared(_Own):
    """A dataset with a cache in memory that all workers share."""

    def __init__(self, records: list[Tensor]) -> None:
        super().__init__(records)
        size = len(_unpacked(records[0]))
        self.there = torch.zeros(len(records), dtype=torch.bool).share_memory_()
        self.all = torch.empty(len(records), size, dtype=torch.uint8).share_memory_()

    def __getitem__(self, number: int) -> Tensor:
        if not self.there[number]:
            self.all[number] = _unpacked(self.records[number])
            self.there[number] = True
        return self.all[number, ::16].float()


def _over_epochs(records: Dataset[Tensor]) -> Tensor:
    """Return the mean of each sample in every epoch; each epoch gives a sample to another worker."""
    orders = [torch.arange(SAMPLES).roll(epoch * BATCH).tolist() for epoch in range(ROUNDS)]
    sampler = [order[first : first + BATCH] for order in orders for first in range(0, SAMPLES, BATCH)]
    loader = DataLoader(records, batch_sampler=sampler, num_workers=WORKERS)
    return torch.cat([batch.mean(dim=1) for batch in loader])


def own_caches(records: list[Tensor]) -> Tensor:
    return _over_epochs(_Own(records))


def shared_cache(records: list[Tensor]) -> Tensor:
    """title: Share one cache of decoded records between workers
    pair: {group: input, plain: own_caches, inputs: shared_records}
    saves: host time of decoding records that another worker decoded before
    idea: Workers that each cache the records they decoded have separate sets, and a sample goes to another
      worker in the next epoch. With w workers it is decoded and stored w times. One array in shared memory,
      with a flag per sample, is filled by the first worker that needs it.
    cost: The decoded set once, in /dev/shm (containers often limit it with --shm-size). A sample that two
      workers decode at the same moment is written twice, with the same bytes.
    not_when: The decoded set exceeds memory, decoding costs no more than copying, or workers always get the
      same samples.
    shows:
      input table, time to fetch a sample after the first epoch: decodes half of them again for some epochs →
        a copy from memory
      memory of the workers: grows to the decoded set in each → the decoded set once
    tips: [data.shared-cache]
    findings: {input-slow-decode: 6}"""
    return _over_epochs(_Shared(records))
