"""
title: A chain of JAX operations under jit
saves: HBM bandwidth and launches
idea: >-
  Outside of jit JAX compiles and launches each operation by itself, and each reads and writes whole arrays.
  Under jit XLA sees the chain and makes one loop of it: one read of each input, one write of the result.
cost: >-
  Tracing and compiling at first and for each new shape. Both forms wait for their result at the end, and
  hand tensors over by DLPack, which copies nothing.
not_when: >-
  The chain is a single product, shapes change from call to call, or values decide in Python what comes next.
shows:
  - what: kernel launches in the chain
    plain: one an operation
    tuned: one
  - what: dram__bytes_read.sum + dram__bytes_write.sum
    plain: two or three times the array for each operation
    tuned: three times the array in all
findings: [kernels-unfused-elementwise]
needs: {packages: [jax]}
latency: included
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # three quarters of the device else

import jax
import jax.numpy as jnp
import torch
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    shape = draw.size(gpu=32768, cpu=16), draw.size(gpu=8192, cpu=24)
    return draw.normal(*shape), draw.normal(*shape)


def _chain(x: jax.Array, gate: jax.Array) -> jax.Array:
    hidden = 0.5 * x * (1.0 + jnp.tanh(0.8 * (x + 0.04 * x * x * x)))
    return hidden / (1.0 + jnp.exp(-gate)) + x


_jitted = jax.jit(_chain)


def _crossing(chain: object, x: Tensor, gate: Tensor) -> Tensor:
    """The chain over the tensors' own memory; the result is there when it returns."""
    given = jax.dlpack.from_dlpack(x), jax.dlpack.from_dlpack(gate)
    return torch.from_dlpack(chain(*given).block_until_ready())  # type: ignore[operator]


def plain(x: Tensor, gate: Tensor) -> Tensor:
    return _crossing(_chain, x, gate)


def tuned(x: Tensor, gate: Tensor) -> Tensor:
    return _crossing(_jitted, x, gate)


def reference(x: Tensor, gate: Tensor) -> Tensor:
    hidden = 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.04 * x * x * x)))
    return hidden / (1.0 + torch.exp(-gate)) + x


def work(x: Tensor, gate: Tensor) -> dict[str, float]:
    return {"bytes": 3 * x.nbytes}
