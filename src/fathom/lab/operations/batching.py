"""Combine samples into batches.

    fathom lab run stacked-collate length-buckets

as_nested_lists converts number by number, stacked_collate array by array. as_they_come pads every batch to a
long sequence; length_buckets sorts sequences by length first.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fathom.lab import Draw, matmul_unit

SAMPLES, SIZE = 64, 4096


def arrays(seed: int, device: str | None = None) -> list[np.ndarray]:
    return list(Draw(seed, "cpu").normal(SAMPLES, SIZE).numpy())


def as_nested_lists(samples: list[np.ndarray]) -> Tensor:
    return torch.tensor(samples)


def stacked_collate(samples: list[np.ndarray]) -> Tensor:
    """title: Collate arrays as blocks
    pair: {group: input, plain: as_nested_lists, inputs: arrays, reference: stacked}
    saves: host time between batches
    idea: torch.tensor treats a list of arrays as nested sequences and creates an object per number. It warns
      about that once, in a worker whose log nobody reads. A stack copies the arrays as blocks of bytes.
    cost: Memory traffic instead of some hundred nanoseconds per number.
    not_when: Samples are a few numbers each, or already tensors, which the loader's default collation stacks.
    shows:
      input table, time to collate: grows with the numbers, at a few million a second → near the memory's
        bandwidth
    tips: [data.whole-batches, data.collate]
    findings: {input-collate: 1, input-sample-by-sample: 1}"""
    return torch.from_numpy(np.stack(samples))


def stacked(samples: list[np.ndarray]) -> Tensor:
    return torch.stack([torch.from_numpy(sample).double() for sample in samples])


BATCH = 32
Weights = tuple[Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Weights]:
    draw = Draw(seed, device)
    samples, longest, width = draw.shape([(512, 128), (1024, 24), (1024, 16)])
    lengths = Draw(seed, "cpu").integers(1, longest + 1, samples)
    tokens = draw.normal(int(lengths.sum()), width, dtype=draw.dtype)
    weights = [draw.normal(width, width, dtype=draw.dtype, scale=width**-0.5) for _ in range(2)]
    return tokens, lengths, (weights[0], weights[1])


def _means(sequences: list[Tensor], lengths: Tensor, weights: Weights) -> Tensor:
    """Return the outputs of a block, averaged over the tokens of each sequence."""
    padded = pad_sequence(sequences, batch_first=True)
    hidden = F.gelu(padded @ weights[0]) @ weights[1]  # padding gives zeros
    return hidden.sum(dim=1) / lengths.to(hidden).unsqueeze(1)


def _batched(tokens: Tensor, lengths: Tensor, weights: Weights, order: Tensor) -> Tensor:
    sequences = tokens.split(lengths.tolist())
    made = [
        _means([sequences[i] for i in batch.tolist()], lengths[batch], weights)
        for batch in order.split(BATCH)
    ]
    means = torch.empty_like(torch.cat(made))
    means[order.to(means.device)] = torch.cat(made)
    return means


def as_they_come(tokens: Tensor, lengths: Tensor, weights: Weights) -> Tensor:
    return _batched(tokens, lengths, weights, torch.arange(len(lengths)))


def length_buckets(tokens: Tensor, lengths: Tensor, weights: Weights) -> Tensor:
    """title: Batch sequences of similar length
    pair: {group: input, plain: as_they_come, work: buckets_work}
    saves: arithmetic and bandwidth spent on padding
    idea: A batch is padded to its longest sequence. Drawn at random, nearly every batch has a long one, and
      all others are padded to it. Sorted by length first, a batch has sequences of about the same length.
    cost: A sort of the lengths. Rows fall from batches times the longest of each to about the number of
      tokens, nearly by half if lengths are uniform.
    not_when: Lengths hardly differ, sequences are packed into full rows anyway, or gradients must come from
      mixed lengths (sort within a pool of some batches, which keeps most of the gain).
    shows: {rows of the products per token reported: near two → a few percent above one}
    no_gain: H200 with a host too slow to keep it busy, 0.78 times as fast. Launches bound the step at a tenth
      of the products' ceiling, so shorter rows save nothing, and batches of many lengths cost the host more.
    tips: [data.buckets]
    findings: {input-padding: 1}
    proof: {latency: included, cache: warm}"""
    return _batched(tokens, lengths, weights, lengths.argsort())


def buckets_work(tokens: Tensor, lengths: Tensor, weights: Weights) -> dict[str, float | str]:
    return {"flops": 4.0 * tokens.numel() * weights[0].shape[1], "unit": matmul_unit(tokens)}
