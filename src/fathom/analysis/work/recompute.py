"""What the backward pass computes a second time: activation checkpointing.

Autograd runs each node of the backward pass in a region of its own. The node of a built-in op never calls
the composites that a model's forward pass is written in: where they show up under it, an unpack hook is
running a part of the forward pass again. `CheckpointFunctionBackward` does so itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.work.tree import Flags, Rows

_NODE = "autograd::engine::evaluate_function: "
_BUILT_IN = _NODE + r".*Backward\d+$"
_CHECKPOINT = _NODE + "CheckpointFunctionBackward"
_FORWARD = (
    "aten::linear", "aten::matmul", "aten::einsum", "aten::conv1d", "aten::conv2d", "aten::conv3d",
    "aten::scaled_dot_product_attention",
)  # fmt: skip


def recomputed(ops: pl.DataFrame, parent: Rows) -> Flags:
    """Rows of `ops` that run a part of the forward pass again; `parent` is each op's caller, or negative."""
    names = ops["name"].fill_null("")
    if not names.unique().str.starts_with(_NODE).any():
        return np.zeros(len(names), dtype=bool)
    node = names.str.starts_with(_NODE).to_numpy()
    again = names.str.contains(_BUILT_IN).to_numpy() | (names == _CHECKPOINT).to_numpy()
    inside = _inherit(parent, node, again)  # the innermost node decides
    checkpoint = _inherit(parent, node, (names == _CHECKPOINT).to_numpy())
    composite = names.is_in(_FORWARD).to_numpy()
    return (inside & _inherit(parent, composite | node, composite)) | (checkpoint & ~node)


def _inherit(parent: Rows, decides: Flags, value: Flags) -> Flags:
    """For each row the `value` of itself or of its nearest ancestor that `decides`; False where none does."""
    found = np.where(decides, value, False)
    current = np.where(decides, -1, parent)
    waiting = np.flatnonzero(current >= 0)
    while len(waiting):
        place = current[waiting]
        found[waiting] = value[place] & decides[place]
        going = ~decides[place] & (parent[place] >= 0)
        current[waiting] = parent[place]
        waiting = waiting[going]
    return found
