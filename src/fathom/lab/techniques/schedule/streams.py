"""
title: Independent chains on streams of their own
saves: multiprocessors that idle beside a small kernel
idea: >-
  Kernels that fill a part of the chip run one after the other on one stream, though they don't depend on
  one another. On two streams the device runs them side by side.
cost: >-
  An event each way, and host time to issue both; memory that the allocator may not share between the
  streams until it is told (record_stream, or joining before it is freed).
not_when: >-
  Each kernel fills the chip, or both chains are bound by the same bandwidth: side by side they only slow each
  other down. Where the host is the bottleneck, more streams don't help either, graphs do: two chains of
  products of 512 by 512 took 1.14 times as long on two streams of an H200.
shows:
  - what: sm__ctas_active.avg.pct_of_peak_sustained_elapsed
    plain: a part of the chip
    tuned: up to twice that
  - what: time in which two kernels run
    plain: none
    tuned: most of it
needs: {gpu: true}
cache: warm
"""
# Only on a GPU: the processor has no streams.

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

DEPTH = 12
ROWS, WIDTH = 48, 32768  # a block normalises a row: 48 of 132 multiprocessors
Given = tuple[Tensor, Tensor, Tensor]


def inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    return draw.normal(2, ROWS, WIDTH), draw.normal(2, WIDTH), draw.normal(2, WIDTH)


def _chain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    for _ in range(DEPTH):
        x = F.layer_norm(x, (WIDTH,), weight, bias)
    return x


@cache
def _side() -> Any:
    return torch.cuda.Stream()


def plain(x: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    return _chain(x[0], weights[0], biases[0]), _chain(x[1], weights[1], biases[1])


def tuned(x: Tensor, weights: Tensor, biases: Tensor) -> tuple[Tensor, Tensor]:
    here = torch.cuda.current_stream()
    _side().wait_stream(here)
    with torch.cuda.stream(_side()):
        second = _chain(x[1], weights[1], biases[1])
    first = _chain(x[0], weights[0], biases[0])
    here.wait_stream(_side())
    second.record_stream(here)
    return first, second


def work(x: Tensor, weights: Tensor, biases: Tensor) -> dict[str, float]:
    return {"bytes": DEPTH * (2 * x.nbytes + weights.nbytes + biases.nbytes)}
