"""Triton kernels of TorchInductor, whose tensor arguments the profiler records.

A kernel's compulsory traffic is each tensor once, unless it accesses only parts of a tensor. The arguments
determine FLOPs only for a single matrix product.
"""

from __future__ import annotations

import math

from fathom.analysis.work.call import Call, Tensor, UnknownWorkError, Work

PREFIX = "triton_"
TEMPLATE = "triton_tem_"  # matrix products and attention
# Operators that access only a part of an argument, as they appear in names of kernels.
_PARTIAL = (
    "embedding", "index", "gather", "scatter", "slice", "select", "split", "unbind", "narrow", "take",
    "unfold", "as_strided", "constant_pad", "cat", "stack", "attention", "pool", "upsample", "convolution",
)  # fmt: skip


def work(call: Call) -> Work:
    """Return the work of a compiled kernel. Raises UnknownWorkError if its arguments do not determine it."""
    partial = next((name for name in _PARTIAL if name in call.name), None)
    if partial:
        raise UnknownWorkError(f"the compiled kernel fuses {partial}, which moves parts of its arguments")
    tensors = call.tensors()
    if not tensors:
        raise UnknownWorkError("the arguments of the compiled kernel were not recorded")
    if call.name.startswith(TEMPLATE):
        return _template(tensors)
    moved = sum(t.bytes for t in tensors)
    return Work(None, moved, _dtype(tensors), "the FLOPs of a fused kernel are not recorded")


def _dtype(tensors: list[Tensor]) -> str | None:
    dtypes = {t.dtype for t in tensors}
    return dtypes.pop() if len(dtypes) == 1 else None


def _template(tensors: list[Tensor]) -> Work:
    """Return the work of a matrix product with an epilogue: the sizes of three matrices determine it."""
    moved = sum(t.bytes for t in tensors)
    if len(tensors) != 3:
        return Work(None, moved, _dtype(tensors), "a fused matrix product with more than two operands")
    a, b, out = tensors
    sizes = a.numel * b.numel * out.numel
    batch = a.shape[0] if len(a.shape) == 3 else 1
    inner = math.isqrt(sizes // batch) if batch else 0
    if len({len(t.shape) for t in tensors}) != 1 or batch * inner * inner != sizes:
        return Work(None, moved, _dtype(tensors), "the operands of a fused matrix product do not fit")
    return Work(2.0 * inner, moved, a.dtype)
