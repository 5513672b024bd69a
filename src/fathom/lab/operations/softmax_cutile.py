"""Compute the softmax of each row, in cuTile.

    fathom lab run cutile-softmax

eager passes over the rows five times; cutile_softmax loads a row as one tile.
"""

from __future__ import annotations

import cuda.tile as ct
import torch
from torch import Tensor

from fathom.lab import normal, traffic

WIDTH = 4096
inputs = normal((16384, WIDTH), scale=3.0)
work = traffic(2)


def eager(x: Tensor) -> Tensor:
    shifted = x - x.max(dim=1, keepdim=True).values
    powers = torch.exp(shifted)
    return powers / powers.sum(dim=1, keepdim=True)


@ct.kernel
def _softmax(x, out, width: ct.Constant[int]):
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, width))
    powers = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=powers / ct.sum(powers, axis=1, keepdims=True))


def cutile_softmax(x: Tensor) -> Tensor:
    """title: Write a softmax as one tile kernel in cuTile
    pair: {group: framework, plain: eager}
    saves: HBM bandwidth
    idea: In eager mode a softmax passes over its rows five times. cuTile programs a block as a whole, without
      threads. It loads a row as one tile, and the compiler chooses registers, shared memory and the copy
      engine.
    cost: Two passes instead of about eight. Extents of tiles are powers of two, so a row of 4097 takes a tile
      of 8192.
    not_when: torch.softmax can be called, or the installed tileiras does not compile for the chip (Hopper
      from CUDA 13.3).
    shows: {dram__bytes_read.sum + dram__bytes_write.sum: about eight times the tensor → twice the tensor}
    tips: [frameworks.tile-languages, operators.softmax]
    findings: {kernels-unfused-elementwise: 3}
    needs: {gpu: true, capability: 8.0, packages: [cuda.tile], tools: {tileiras: "13.3"}}"""
    # Only on a GPU: cuTile has no interpreter.
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (len(x), 1, 1), _softmax, (x, out, WIDTH))
    return out


def reference(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=1)
