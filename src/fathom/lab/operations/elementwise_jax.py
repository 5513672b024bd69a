"""Compute a chain of elementwise operations in JAX.

    fathom lab run jax-jit

one_by_one launches each operation; jax_jit compiles the chain.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes three quarters of the device

import jax
import jax.numpy as jnp
import torch
from torch import Tensor

from fathom.lab import normal, traffic

ROWS, COLUMNS = (32768, 16), (8192, 24)  # on a GPU, on a processor
inputs = normal((ROWS, COLUMNS), (ROWS, COLUMNS))
work = traffic(3)


def _chain(x: jax.Array, gate: jax.Array) -> jax.Array:
    hidden = 0.5 * x * (1.0 + jnp.tanh(0.8 * (x + 0.04 * x * x * x)))
    return hidden / (1.0 + jnp.exp(-gate)) + x


_jitted = jax.jit(_chain)


def _crossing(chain: object, x: Tensor, gate: Tensor) -> Tensor:
    """Apply the chain to the tensors without copies, and wait for the result."""
    given = jax.dlpack.from_dlpack(x), jax.dlpack.from_dlpack(gate)
    return torch.from_dlpack(chain(*given).block_until_ready())  # type: ignore[operator]


def one_by_one(x: Tensor, gate: Tensor) -> Tensor:
    return _crossing(_chain, x, gate)


def jax_jit(x: Tensor, gate: Tensor) -> Tensor:
    """title: Compile a chain of JAX operations with jit
    pair: {group: framework, plain: one_by_one}
    saves: HBM bandwidth and launches
    idea: Outside jit, JAX compiles and launches each operation separately, and each reads and writes whole
      arrays. Under jit, XLA makes one loop of the chain, with one read of each input and one write of the
      result.
    cost: Tracing and compiling at first and for each new shape. Both forms wait for their result at the end
      and exchange tensors through DLPack, which copies nothing.
    not_when: The chain is a single product, shapes change between calls, or Python decides on the next step
      by values.
    shows:
      kernel launches in the chain: one per operation → one
      dram__bytes_read.sum + dram__bytes_write.sum: two or three times the array per operation → three times
        the array
    tips: [frameworks.jax-jit, operators.elementwise]
    findings: {kernels-unfused-elementwise: 4}
    needs: {packages: [jax]}
    proof: {latency: included}"""
    return _crossing(_jitted, x, gate)


def reference(x: Tensor, gate: Tensor) -> Tensor:
    hidden = 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.04 * x * x * x)))
    return hidden / (1.0 + torch.exp(-gate)) + x
