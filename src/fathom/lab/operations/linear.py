"""Multiply by the weights of a linear layer.

    fathom lab run tf32 mixed-precision sparse-weights padded-vocabulary

in_float32 and block_in_float32 leave tensor cores unused; tf32 and mixed_precision use them. dense multiplies
pruned weights in full, sparse_weights does not. odd_vocabulary has rows that begin at odd addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, matmul_unit, normal

N = (4096, 64)  # on a GPU, on a processor
inputs = normal((N, N), (N, N))


def work(left: Tensor, right: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * left.numel() * right.shape[1], "bytes": 3 * left.nbytes, "unit": "matmul.tf32"}


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def in_float32(left: Tensor, right: Tensor) -> Tensor:
    return left @ right


def tf32(left: Tensor, right: Tensor) -> Tensor:
    """title: Multiply float32 on tensor cores
    pair: {group: compute, plain: in_float32}
    saves: time of the arithmetic units
    idea: TF32 rounds float32 operands to ten bits of mantissa on the way into the tensor cores and
      accumulates in float32. One setting makes products of float32 matrices several times as fast.
    cost: A relative error of about 5e-4 per operand instead of 6e-8. Range, storage and sums stay float32.
    not_when: The numbers need float32 (solvers, statistics, differences of nearly equal values), or bf16
      suffices, which also halves the bytes.
    shows:
      sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed: about 0 → most of the product
      sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed: near the peak → about 0
    tips: [compute.tf32]
    findings: {kernels-tf32-off: 1, kernels-tensor-cores-idle: 4}
    needs: {gpu: true, capability: 8.0}
    proof: {precision: tf32}"""
    # Only on a GPU: the processor has no TF32.
    with _tf32():
        return left @ right


Weights = tuple[Tensor, Tensor]


def block_inputs(seed: int, device: str | None = None) -> tuple[Tensor, Weights]:
    draw = Draw(seed, device)
    width = draw.size(gpu=2048, cpu=32)
    up = draw.normal(4 * width, width, scale=width**-0.5)
    down = draw.normal(width, 4 * width, scale=(4 * width) ** -0.5)
    return draw.normal(draw.size(gpu=8192, cpu=24), width), (up, down)


def _block(x: Tensor, weights: Weights) -> Tensor:
    up, down = weights
    return F.linear(F.gelu(F.linear(x, up)), down)


def block_in_float32(x: Tensor, weights: Weights) -> Tensor:
    return _block(x, weights)


def mixed_precision(x: Tensor, weights: Weights) -> Tensor:
    """title: Compute a block of a network in bf16
    pair: {group: compute, plain: block_in_float32, inputs: block_inputs, work: block_work}
    saves: tensor-core time, and HBM bandwidth
    idea: Tensor cores multiply bf16 at twice the rate of TF32 and many times that of float32, and every
      activation takes half the bytes. Sums stay in float32. Weights can too, and are cast on the way in.
    cost: Stored values have eight bits of mantissa. Casting weights reads them in float32 and writes them in
      bf16, so cast once if weights do not change in between.
    not_when: The step is launch-bound, or dominated by operations that need float32 (norms, losses and
      softmax use it internally).
    shows: {kernel families of the products: sgemm → bf16 (wgmma or hmma)}
    tips: [compute.bf16]
    findings: {kernels-no-mixed-precision: 1, kernels-tensor-cores-idle: 1}
    proof: {precision: bf16}"""
    with torch.autocast(x.device.type, torch.bfloat16):
        return _block(x, weights).float()


def block_work(x: Tensor, weights: Weights) -> dict[str, float | str]:
    return {"flops": 4.0 * len(x) * weights[0].numel(), "unit": matmul_unit(x)}


def pruned_inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width = 8192, 8192
    x, weight = draw.normal(tokens, width), draw.normal(width, width, scale=width**-0.5)
    fours = weight.view(width, -1, 4)
    least = fours.abs().topk(2, dim=-1, largest=False).indices
    pruned = fours.scatter(-1, least, 0.0).view_as(weight).bfloat16()
    return x.bfloat16(), pruned, torch._cslt_compress(pruned)


def dense(x: Tensor, pruned: Tensor, compressed: Tensor) -> Tensor:
    return F.linear(x, pruned)


_chosen: dict[tuple[torch.Size, torch.Size], int] = {}


def _algorithm(compressed: Tensor, x: Tensor) -> int:
    """Return the number of cuSPARSELt's fastest algorithm for these shapes, found by a search."""
    shapes = compressed.shape, x.shape
    if shapes not in _chosen:
        _chosen[shapes] = torch._cslt_sparse_mm_search(compressed, x.t(), transpose_result=True)
    return _chosen[shapes]


def sparse_weights(x: Tensor, pruned: Tensor, compressed: Tensor) -> Tensor:
    # The call of a linear layer with to_sparse_semi_structured weights, on weights compressed in advance.
    """title: Multiply 2:4 sparse weights on sparse tensor cores
    pair: {group: framework, plain: dense, inputs: pruned_inputs, work: pruned_work}
    saves: tensor-core time, and half the bytes of the weights
    idea: Where two of every four neighbouring weights are zero, only the other two are stored, with two bits
      each for their positions. Sparse tensor cores select the matching operands and do twice the products in
      the same time.
    cost: Compressing once (in advance here, where weights are fixed), and timing cuSPARSELt's algorithms once
      per shape, since the first one is slower than the dense product. At best half the time; 1.2 to 1.6 times
      as fast is usual, since the other operand and the result stay as large.
    not_when: Weights are not pruned in this pattern and trained for it, batches are small (bandwidth decides;
      fewer bits per weight save more), or the product is small compared with its launch.
    shows:
      kernel family of the product: bf16 (nvjet or wgmma) → sparse (spgemm or sp in its name)
      FLOP/s as of a dense product: below the dense peak → may exceed it
    tips: [compute.sparsity]
    no_finding: whether a model may be pruned is not in a recording.
    needs: {gpu: true, capability: 8.0, torch: "2.5"}"""
    # Only on a GPU: cuSPARSELt compresses the weights.
    how = {"transpose_result": True, "alg_id": _algorithm(compressed, x)}
    product: Tensor = torch._cslt_sparse_mm(compressed, x.t(), **how)
    return product


def pruned_work(x: Tensor, pruned: Tensor, compressed: Tensor) -> dict[str, float | str]:
    moved = 2 * x.nbytes + compressed.nbytes
    return {"flops": x.numel() * len(pruned), "bytes": moved, "unit": "matmul.bf16"}


MULTIPLE = 64


def vocabulary(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    tokens, width, words = draw.shape([(8192, 20), (768, 16), (50257, 157)])
    hidden = draw.normal(tokens, width, dtype=draw.dtype)
    table = draw.normal(words, width, dtype=draw.dtype, scale=width**-0.5)
    return hidden, table, F.pad(table, (0, 0, 0, -words % MULTIPLE))


def odd_vocabulary(hidden: Tensor, table: Tensor, padded: Tensor) -> Tensor:
    return torch.logsumexp(F.linear(hidden, table), dim=1)


def padded_vocabulary(hidden: Tensor, table: Tensor, padded: Tensor) -> Tensor:
    """title: Pad a vocabulary to a multiple of 64
    pair: {group: framework, plain: odd_vocabulary, inputs: vocabulary, work: vocabulary_work}
    saves: time of the last layer's product
    idea: Rows of 50257 bf16 numbers begin at odd addresses, which kernels with 16-byte loads cannot handle.
      The library falls back to narrower loads or smaller tiles. Padding the table to 50304 rows that are
      never chosen makes the fast kernels usable.
    cost: A thousandth more arithmetic and bytes. The added logits must be cut off or set to minus infinity.
    not_when: The sizes are already multiples of 64. Library versions differ in how much they lose.
    shows:
      kernel family of the last product: a small tile, or align1 or align2 in its name → a large tile, align8
    tips: [operators.vocabulary, operators.layer-sizes]
    findings: {numbers-odd-vocabulary: 1, numbers-odd-size: 1}"""
    return torch.logsumexp(F.linear(hidden, padded)[:, : len(table)], dim=1)


def vocabulary_work(hidden: Tensor, table: Tensor, padded: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * hidden.numel() * len(table), "unit": matmul_unit(hidden)}
