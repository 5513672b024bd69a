"""Embedding lookups: they read the indexed rows, or at most the table once. Only additions count as FLOPs."""

from __future__ import annotations

from fathom.analysis.work.call import Call, Tensor, Work, numel


def _rows(table: Tensor, lookups: int) -> float:
    """Return the bytes of the rows that are read."""
    return min(lookups, table.shape[0]) * numel(table.shape[1:]) * table.size


def _embedding(call: Call) -> Work:
    table, indices = call.tensor(0), call.tensor(1)
    out = indices.numel * numel(table.shape[1:]) * table.size
    return Work(0.0, _rows(table, indices.numel) + indices.bytes + out, table.dtype)


def _dense_backward(call: Call) -> Work:
    """Return the work of adding each gradient row to the table, which another op has zeroed."""
    grad, indices = call.tensor(0), call.tensor(1)
    touched = min(indices.numel, call.ints(2)[0]) * grad.shape[-1] * grad.size
    return Work(float(grad.numel), grad.bytes + indices.bytes + 2 * touched, grad.dtype)


def _bag(call: Call) -> Work:
    """Return the work of summing the rows of each bag."""
    table, indices, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    width = numel(table.shape[1:])
    out = offsets.numel * width * table.size
    moved = _rows(table, indices.numel) + indices.bytes + offsets.bytes + out
    return Work(float(indices.numel * width), moved, table.dtype)


FORMULAS = {
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _dense_backward,
    "aten::_embedding_bag": _bag,
    "aten::_embedding_bag_forward_only": _bag,
}
