"""
title: Compiling the block that a model repeats
saves: time of the first compilation
idea: >-
  Compiled as a whole, a model of like blocks is traced and lowered block by block, all in one graph, and time
  grows with their number. Compiled once as a region, the block's code serves them all.
cost: >-
  No fusion across blocks, and one guarded call of a compiled function for each: some ten microseconds. Here
  a call compiles from nothing, without any cache on disk, and runs once.
not_when: >-
  The program runs for hours and blocks are small (then fusion and calls decide), the caches on disk are warm,
  or blocks differ in what is traced, so that each is compiled anyway.
shows:
  - what: waits of cause compilation before the first step
    plain: grow with the blocks
    tuned: those of one block
findings: [host-compiling-in-steps]
needs: {gpu: true, torch: "2.8", packages: [triton]}
latency: included
cache: warm
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

BLOCKS = 8


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, list[Tensor]]:
    draw = Draw(seed, device)
    rows, width = draw.size(gpu=1024, cpu=8), draw.size(gpu=512, cpu=16)
    return draw.normal(rows, width), [draw.normal(width, width, scale=width**-0.5) for _ in range(BLOCKS)]


def _block(x: Tensor, weight: Tensor) -> Tensor:
    return x + torch.tanh(F.layer_norm(x, x.shape[-1:]) @ weight)


def _blocks(block: Callable[..., Any], x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = block(x, weight)
    return x


def _model(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _blocks(_block, x, weights)


def _afresh(run: Callable[[], Tensor]) -> Tensor:
    """What is compiled within is compiled anew."""
    from torch._inductor.utils import fresh_cache

    torch.compiler.reset()
    with fresh_cache(), torch.no_grad():
        return run()


def plain(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _afresh(lambda: torch.compile(_model)(x, weights))


def tuned(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _afresh(lambda: _blocks(torch.compile(_block), x, weights))


def reference(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _model(x, weights)
