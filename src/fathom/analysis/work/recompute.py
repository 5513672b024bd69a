"""Find recomputation in the backward pass, as in activation checkpointing.

Autograd runs each node of the backward pass in a region, with the node's function inside. The function of a
built-in op does not call the composite ops of a model's forward pass, except in linear algebra. If a
composite op appears in one, an unpack hook is running part of the forward pass again. Other calls of a node
are tensor hooks. `CheckpointFunctionBackward` runs the part itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.causes import AUTOGRAD
from fathom.analysis.columns import distinct, filled
from fathom.analysis.intervals import NOTHING, Spans, union
from fathom.analysis.work.tree import Flags, Rows, rows_of

_NODE = f"{AUTOGRAD}: "
_BUILT_IN = _NODE + r".*Backward\d+$"
# Nodes whose formulas multiply matrices (torch/csrc/autograd/FunctionsManual.cpp).
_ALGEBRA = (
    r": ([A-Za-z0-9_]*(Linalg|Cholesky|Triangular|Ormqr|Householder|Inverse|Logdet)[A-Za-z0-9_]*"
    r"|Lu[A-Za-z0-9_]*|MatrixExp|Cdist|EuclideanDist)Backward"
)
_REENTRANT = "CheckpointFunctionBackward"  # a node, and the function in it
_CHECKPOINT = _NODE + _REENTRANT
_FORWARD = (
    "aten::linear", "aten::matmul", "aten::einsum", "aten::conv1d", "aten::conv2d", "aten::conv3d",
    "aten::scaled_dot_product_attention",
)  # fmt: skip
# Ops that node functions do not call either.
ONLY_FORWARD = r"aten::(relu|gelu|silu|(native_)?layer_norm|rms_norm|dropout|softmax|linear|conv\d?d?)( |$)"


def recomputed(ops: pl.DataFrame, parent: Rows) -> Flags:
    """Return a mask of ops that repeat the forward pass; `parent`: the row of an op's caller, or negative."""
    names = filled(ops["name"], "")
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
    """Return the times in which part of the forward pass is repeated, with the Python between its ops.

    A region lasts from the start of the node's function to the function's first own op, or to the first node
    that it calls. `ops` has the columns id, parent, name, phase, burst, start_ns and end_ns.
    """
    parent = rows_of(ops, ops, "parent")
    names = filled(ops["name"], "")
    node = names.str.starts_with(_NODE).to_numpy()
    function = _child_of(parent, node)
    repeats, owners = _up_to(function, recomputed(ops, parent) & ~function, parent)
    if not len(owners):
        return NOTHING
    flags = {"repeats": pl.Series(repeats) | names.str.contains(ONLY_FORWARD), "node": pl.Series(node)}
    rows = ops.select("start_ns", "end_ns", **flags).with_columns(
        owner=pl.Series(parent), row=pl.int_range(pl.len())
    )
    inside = rows.filter(pl.col("owner").is_in(owners))
    last = inside.filter("repeats", ~pl.col("node")).group_by("owner").agg(last=pl.col("end_ns").max())
    own = pl.col("node") | (~pl.col("repeats") & (pl.col("start_ns") >= pl.col("last")))
    after = inside.join(last, on="owner").filter(own).group_by("owner").agg(after=pl.col("start_ns").min())
    joined = last.join(after, on="owner", how="left").join(rows, left_on="owner", right_on="row")
    return union(joined["start_ns"].to_numpy(), filled(joined["after"], joined["end_ns"]).to_numpy())


def _child_of(parent: Rows, callers: Flags) -> Flags:
    """Return a mask of the rows whose parent is in the mask `callers`."""
    called = parent >= 0
    called[called] = callers[parent[called]]
    return called


def _up_to(stop: Flags, marked: Flags, parent: Rows) -> tuple[Flags, Rows]:
    """Return the mask `marked` extended to callers below rows in `stop`, and the rows of `stop` reached."""
    seen, stops = marked.copy(), np.zeros(len(parent), dtype=bool)
    current = np.flatnonzero(marked)
    while len(current):
        current = parent[current]
        current = distinct(current[current >= 0])
        stops[current[stop[current]]] = True
        current = current[~stop[current] & ~seen[current]]
        seen[current] = True
    return seen, np.flatnonzero(stops)


def _inherit(parent: Rows, decides: Flags, value: Flags) -> Flags:
    """Return the `value` of each row, or of its nearest ancestor, that `decides`; False if there is none."""
    inherited = np.where(decides, value, False)
    current = np.where(decides, -1, parent)
    waiting = np.flatnonzero(current >= 0)
    while len(waiting):
        place = current[waiting]
        inherited[waiting] = value[place] & decides[place]
        going = ~decides[place] & (parent[place] >= 0)
        current[waiting] = parent[place]
        waiting = waiting[going]
    return inherited
