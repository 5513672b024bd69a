"""What the backward pass computes a second time: activation checkpointing.

Autograd runs each node of the backward pass in a region of its own, and in it the node's function. That of a
built-in op calls none of the composites that a model's forward pass is written in, but for linear algebra:
where they show up in it, an unpack hook is running a part of the forward pass again. What a node calls beside
its function are hooks on tensors. `CheckpointFunctionBackward` runs the part itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.intervals import NOTHING, Spans, union
from fathom.analysis.work.tree import Flags, Rows, rows_of

_NODE = "autograd::engine::evaluate_function: "
_BUILT_IN = _NODE + r".*Backward\d+$"
# Whose formulas multiply matrices (torch/csrc/autograd/FunctionsManual.cpp).
_ALGEBRA = (
    r": (\w*(Linalg|Cholesky|Triangular|Ormqr|Householder|Inverse|Logdet)\w*|Lu\w*|MatrixExp|Cdist"
    r"|EuclideanDist)Backward"
)
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
    built_in = names.str.contains(_BUILT_IN) & ~names.str.contains(_ALGEBRA)
    again = (built_in | (names == _CHECKPOINT)).to_numpy()
    inside = _inherit(parent, node, again)  # the innermost node decides
    checkpoint = _inherit(parent, node, (names == _CHECKPOINT).to_numpy())
    composite = names.is_in(_FORWARD).to_numpy() & ~_child_of(parent, node)
    return (inside & _inherit(parent, composite | node, composite)) | (checkpoint & ~node)


def regions(ops: pl.DataFrame) -> Spans:
    """When a part of the forward pass runs again, the Python between its ops included.

    That is what a node's function begins with, up to what it does itself or to the nodes that it calls.
    `ops` has the columns id, parent, name, phase, burst, start_ns and end_ns.
    """
    parent = rows_of(ops, ops, "parent")
    names = ops["name"].fill_null("")
    node = names.str.starts_with(_NODE).to_numpy()
    function = _child_of(parent, node)
    repeats, owners = _up_to(function, recomputed(ops, parent) & ~function, parent)
    if not len(owners):
        return NOTHING
    told = {"repeats": pl.Series(repeats) | names.str.contains(ONLY_FORWARD), "node": pl.Series(node)}
    rows = ops.select("start_ns", "end_ns", **told).with_columns(
        owner=pl.Series(parent), row=pl.int_range(pl.len())
    )
    inside = rows.filter(pl.col("owner").is_in(owners))
    last = inside.filter("repeats", ~pl.col("node")).group_by("owner").agg(last=pl.col("end_ns").max())
    own = pl.col("node") | (~pl.col("repeats") & (pl.col("start_ns") >= pl.col("last")))
    after = inside.join(last, on="owner").filter(own).group_by("owner").agg(after=pl.col("start_ns").min())
    found = last.join(after, on="owner", how="left").join(rows, left_on="owner", right_on="row")
    return union(found["start_ns"].to_numpy(), found["after"].fill_null(found["end_ns"]).to_numpy())


def _child_of(parent: Rows, callers: Flags) -> Flags:
    """Rows that one of `callers` calls."""
    found = parent >= 0
    found[found] = callers[parent[found]]
    return found


def _up_to(stop: Flags, marked: Flags, parent: Rows) -> tuple[Flags, Rows]:
    """`marked` and what calls them up to the rows that `stop`, and those: programs have regions too."""
    seen, stops = marked.copy(), np.zeros(len(parent), dtype=bool)
    current = np.flatnonzero(marked)
    while len(current):
        current = parent[current]
        current = np.unique(current[current >= 0])
        stops[current[stop[current]]] = True
        current = current[~stop[current] & ~seen[current]]
        seen[current] = True
    return seen, np.flatnonzero(stops)


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
