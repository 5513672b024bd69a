"""Lookups, gather, scatter, concatenation: only additions count as FLOPs; indexed elements move once."""

from __future__ import annotations

from fathom.analysis.work.call import Call, Formula, Tensor, UnknownWorkError, Work, numel, ops


def _slice_size(x: Tensor, dim: int) -> int:
    """Return the elements per index along `dim`."""
    return x.numel // max(x.shape[dim], 1) if x.shape else 1


def _index_select(call: Call) -> Work:
    """Return the work of index_select(x, dim, index)."""
    x, index = call.tensor(0), call.tensor(2)
    slice_size = _slice_size(x, call.ints(1)[0])
    read = min(index.numel * slice_size, x.numel) * x.size
    return Work(0.0, read + index.bytes + index.numel * slice_size * x.size, x.dtype)


def _gather(call: Call) -> Work:
    """Return the work of gather(x, dim, index)."""
    x, index = call.tensor(0), call.tensor(2)
    read = min(index.numel, x.numel) * x.size
    return Work(0.0, read + index.bytes + index.numel * x.size, x.dtype)


def _scatter(adds: bool) -> Formula:
    """Return a formula for scatter_(x, dim, index, source or value); with `adds`, the target is read too."""

    def formula(call: Call) -> Work:
        x, index = call.tensor(0), call.tensor(2)
        source = index.numel * call.tensor(3).size if call.has(3) else 0.0
        target = min(index.numel, x.numel) * x.size * (2 if adds else 1)
        return Work(float(index.numel) if adds else 0.0, index.bytes + source + target, x.dtype)

    return formula


def _index_add(call: Call) -> Work:
    """Return the work of index_add_(x, dim, index, source, alpha)."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    target = 2 * min(source.numel, x.numel) * x.size
    return Work(float(source.numel), index.bytes + source.bytes + target, x.dtype)


def _cat(call: Call) -> Work:
    """Return the work of cat(tensors, dim), which reads and writes every element."""
    parts = call.tensor_list(0)
    try:
        moved = 2 * sum(part.bytes for part in parts)
    except UnknownWorkError as error:
        return Work(0.0, None, None, str(error))
    return Work(0.0, moved, parts[0].dtype if parts else None)


def _advanced(call: Call) -> Work:
    raise UnknownWorkError("the profiler records neither the indices' dtypes nor the size of the result")


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
    **ops("index_select", _index_select),
    **ops("gather", _gather),
    **ops("scatter_", _scatter(adds=False)),
    **ops("scatter_add_", _scatter(adds=True)),
    **ops("index_add_", _index_add),
    **ops("cat", _cat),
    **ops("index index_put_ _index_put_impl_ masked_select nonzero", _advanced),
    **ops("embedding", _embedding),
    **ops("embedding_dense_backward", _dense_backward),
    **ops("_embedding_bag _embedding_bag_forward_only", _bag),
}
