"""Multiply activations by a low-rank matrix A B, as adapters (LoRA) and factorised layers do.

    fathom lab run factors-in-turn

merged builds the full matrix first; factors_in_turn multiplies by one factor after the other.
"""

from __future__ import annotations

from torch import Tensor

from fathom.lab import matmul_unit, normal

TOKENS, WIDTH, RANK = (4096, 256), (4096, 1024), 16
inputs = normal((TOKENS, WIDTH), (WIDTH, RANK), (RANK, WIDTH), narrow=True, scale=0.25)


def merged(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return x @ (down @ up)


def factors_in_turn(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """title: Multiply by one low-rank factor after the other
    pair: {group: compute, plain: merged}
    saves: arithmetic of a product with the full matrix
    idea: x (A B) and (x A) B are equal, but their cost is not. The first builds a matrix as large as the full
      weight and multiplies by it. The second never leaves the rank, so its work is linear in the width.
    cost: FLOPs fall from 2 w² (r + n) to 4 n w r for n tokens, width w and rank r. Both forms round once
      between the products, in the dtype of the inputs. With 256 tokens, width 1024 and rank 16 it took a
      twentieth of the time on one core of a Xeon.
    not_when: The full matrix is used many times, as with an adapter that is merged into its layer once. The
      rank is more than half the width.
    shows: {FLOPs of the products in the report: 2 w² (r + n) → 4 n w r}
    tips: [operators.low-rank-factors]
    no_finding: A recording has the shapes of both products, but not that their order is free.
    """
    return (x @ down) @ up


def work(x: Tensor, down: Tensor, up: Tensor) -> dict[str, float | str]:
    flops = 4 * x.shape[0] * down.numel()
    size = x.nbytes + down.nbytes + up.nbytes + x.nbytes
    return {"flops": flops, "bytes": size, "unit": matmul_unit(x)}
