"""
title: Transfers beside the arithmetic
saves: idle time of the device while data comes in
idea: >-
  From pinned memory a copy runs on the copy engine alone. On a stream of its own the next chunk comes in
  while the present one is worked on; an event tells the arithmetic when its chunk is there.
cost: >-
  Two buffers on the device, pinned pages on the host, an event a chunk. Time becomes the longer of copies
  and arithmetic, not their sum.
not_when: >-
  The copies are far longer than the arithmetic or the other way round, or the source is pageable: such a
  copy is staged by the host, and blocks it.
shows:
  - what: ledger, copy from host to device
    plain: all of it exposed
    tuned: what the arithmetic does not cover
findings: [input-copy-not-overlapped, input-synchronous-copy]
needs: {gpu: true}
latency: included
cache: warm
"""
# Only on a GPU: nothing is transferred on a processor.

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw

CHUNKS, ROWS, WIDTH = 8, 1024, 2048


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw, host = Draw(seed, device), Draw(seed, "cpu")
    chunks = host.normal(CHUNKS, ROWS, WIDTH)
    weight = draw.normal(WIDTH, WIDTH, scale=WIDTH**-0.5)
    return (chunks.pin_memory() if draw.device == "cuda" else chunks), weight


def _worked(chunk: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(chunk @ weight).sum(dim=0)


def plain(chunks: Tensor, weight: Tensor) -> Tensor:
    return torch.stack([_worked(chunk.to(weight.device), weight) for chunk in chunks])


@cache
def _copies() -> Any:
    return torch.cuda.Stream()


def tuned(chunks: Tensor, weight: Tensor) -> Tensor:
    here, results = torch.cuda.current_stream(), []
    _copies().wait_stream(here)
    coming = _fetched(chunks[0], weight)
    for number in range(len(chunks)):
        chunk, there = coming
        if number + 1 < len(chunks):
            coming = _fetched(chunks[number + 1], weight)
        here.wait_event(there)
        chunk.record_stream(here)
        results.append(_worked(chunk, weight))
    return torch.stack(results)


def _fetched(chunk: Tensor, weight: Tensor) -> tuple[Tensor, Any]:
    with torch.cuda.stream(_copies()):
        return chunk.to(weight.device, non_blocking=True), _copies().record_event()


def work(chunks: Tensor, weight: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * chunks.numel() * WIDTH, "unit": "matmul.fp32"}
