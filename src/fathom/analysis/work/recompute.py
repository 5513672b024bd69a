"""What the backward pass computes a second time: activation checkpointing.

Autograd runs each node of the backward pass in a region of its own. The node of a built-in op never calls
the composites that a model's forward pass is written in: where they show up under it, an unpack hook is
running a part of the forward pass again. `CheckpointFunctionBackward` does so itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import NOTHING, Spans, union
from fathom.analysis.work.tree import Flags, Rows, rows_of

_NODE = "autograd::engine::evaluate_function: "
_BUILT_IN = _NODE + r".*Backward\d+$"
_REENTRANT = "CheckpointFunctionBackward"  # a node, and the function in it
_CHECKPOINT = _NODE + _REENTRANT
_FORWARD = (
    "aten::linear", "aten::matmul", "aten::einsum", "aten::conv1d", "aten::conv2d", "aten::conv3d",
    "aten::scaled_dot_product_attention",
)  # fmt: skip
# Besides those: what no node calls for its own part.
ONLY_FORWARD = r"aten::(relu|gelu|silu|(native_)?layer_norm|rms_norm|dropout|softmax|linear|conv\d?d?)( |$)"


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


def regions(ops: pl.DataFrame) -> Spans:
    """When a part of the forward pass runs again, the Python between its ops included.

    That is what a node of the backward pass begins with, up to what it does itself or to the nodes that it
    calls. `ops` has the columns id, parent, name, phase, burst, start_ns and end_ns.
    """
    parent = rows_of(ops, ops, "parent")
    names = ops["name"].fill_null("")
    again = recomputed(ops, parent) & ~names.str.ends_with(_REENTRANT).to_numpy()
    first = again & (parent >= 0)
    first[first] = ~again[parent[first]]
    if not first.any():
        return NOTHING
    told = {
        "repeats": names.str.contains(ONLY_FORWARD) | pl.Series(again),
        "node": names.str.starts_with(_NODE),
    }
    rows = ops.select("start_ns", "end_ns", **told).with_columns(
        owner=pl.Series(parent), row=pl.int_range(pl.len())
    )
    inside = rows.filter(pl.col("owner").is_in(np.unique(parent[first])))
    last = inside.filter("repeats", ~pl.col("node")).group_by("owner").agg(last=pl.col("end_ns").max())
    own = pl.col("node") | (~pl.col("repeats") & (pl.col("start_ns") >= pl.col("last")))
    after = inside.join(last, on="owner").filter(own).group_by("owner").agg(after=pl.col("start_ns").min())
    owners = last.join(after, on="owner", how="left").join(rows, left_on="owner", right_on="row")
    ends = owners["after"].fill_null(owners["end_ns"])
    return union(owners["start_ns"].to_numpy(), ends.to_numpy())


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
