"""
title: A softmax as one tile kernel in cuTile
saves: HBM bandwidth
idea: >-
  Written out in torch, a softmax passes over its rows five times. In cuTile a block is programmed as a whole,
  without threads: it loads a row as one tile, and the compiler chooses registers, shared memory and the copy
  engine for it.
cost: >-
  Two passes in place of about eight. Extents of tiles are powers of two, so a row of 4097 takes a tile of
  8192.
not_when: >-
  torch.softmax does it already, or the chip is not one that the installed tileiras compiles for (Hopper
  from CUDA 13.3 on).
shows:
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: about eight times the tensor
    tuned: twice the tensor
findings: [kernels-unfused-elementwise]
needs: {gpu: true, capability: 8.0, packages: [cuda.tile], tools: {tileiras: "13.3"}}
"""
# Only on a GPU: cuTile has no interpreter.

from __future__ import annotations

import cuda.tile as ct
import torch
from torch import Tensor

from fathom.lab import Draw

WIDTH = 4096


def inputs(seed: int, device: str | None = None) -> Tensor:
    return Draw(seed, device).normal(16384, WIDTH, scale=3.0)


def plain(x: Tensor) -> Tensor:
    shifted = x - x.max(dim=1, keepdim=True).values
    powers = torch.exp(shifted)
    return powers / powers.sum(dim=1, keepdim=True)


@ct.kernel
def _softmax(x, out, width: ct.Constant[int]):
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, width))
    powers = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=powers / ct.sum(powers, axis=1, keepdims=True))


def tuned(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (len(x), 1, 1), _softmax, (x, out, WIDTH))
    return out


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)


def work(x: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
