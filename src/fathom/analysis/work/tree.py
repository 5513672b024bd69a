"""The tree of ops as arrays: callers, ops with formulas, and ops whose parts do the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from fathom.analysis.columns import filled
from fathom.analysis.work.registry import is_known, is_product


def _aten(text: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in text.split())


# Views, metadata, allocation: nothing is read or written.
WITHOUT_WORK = _aten(
    "alias as_strided chunk detach detach_ diagonal empty empty_like empty_permuted empty_strided expand "
    "expand_as flatten is_complex is_floating_point is_nonzero is_pinned is_same_size item lift lift_fresh "
    "movedim moveaxis narrow new_empty new_empty_strided permute record_stream requires_grad_ resize_ "
    "resize_as_ resolve_conj resolve_neg result_type select set_ set_data slice split split_with_sizes "
    "squeeze squeeze_ swapaxes swapdims t t_ tensor_split transpose transpose_ unbind unflatten unfold "
    "unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ values view view_as "
    "view_as_complex view_as_real _conj _local_scalar_dense _neg_view _reshape_alias _unsafe_view"
) | {"detach", "torch::autograd::AccumulateGrad", "TorchDynamo Cache Lookup"}

# These ops only move data: as parts, they do not carry the work of an op that computes.
MOVES = _aten("copy_ fill_ zero_ _foreach_copy_ _foreach_zero_")

# The parts of these ops do the work, if they were recorded.
COMPOSITE = _aten(
    "linear matmul einsum inner outer tensordot chain_matmul kron linalg_multi_dot bilinear "
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward _fused_sdp_choice "
    "convolution _convolution convolution_overrideable conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d thnn_conv2d slow_conv3d "
    "layer_norm rms_norm _fused_rms_norm group_norm batch_norm native_batch_norm instance_norm "
    "_batch_norm_impl_index _batch_norm_impl_index_backward "
    "softmax log_softmax logsumexp cross_entropy_loss nll_loss nll_loss_nd nll_loss2d mse_loss l1_loss "
    "smooth_l1_loss binary_cross_entropy_with_logits cosine_similarity "
    "embedding embedding_backward embedding_bag lstm gru rnn_tanh rnn_relu lstm_cell gru_cell "
    "dropout dropout_ feature_dropout alpha_dropout bernoulli "
    "to _to_copy contiguous clone reshape type_as cpu cuda repeat tile copy pin_memory _pin_memory "
    "select_backward slice_backward constant_pad_nd pad stack hstack vstack concat concatenate "
    "zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full zero_ zero scalar_tensor "
    "rand randn rand_like randn_like randint arange tensor "
    "mean var std norm linalg_norm linalg_vector_norm sum_to_size all any square pow relu relu_ silu_ "
    "clamp_min_ divide multiply subtract true_divide floor_divide rsub isfinite allclose nan_to_num "
    "nan_to_num_ glu where masked_fill index_fill scatter scatter_add index_add index_put_ "
    "_index_put_impl_ argsort sort msort dist cdist "
    "max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d "
    "upsample_nearest2d"
)

# These ops are counted by their shapes, because their parts are misleading: on CUDA, index_select gathers by
# an index that is expanded over rows but not moved.
COUNTED_AS_ONE = {"aten::index_select"}

NONE = -1  # no row
_DENSE = 64  # keys per row up to which a table of all keys is faster than a search
BURST = ["phase", "burst"]  # one uninterrupted stretch of a recording
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Tree(msgspec.Struct, frozen=True):
    """Arrays over the rows of a table of ops."""

    parent: Rows  # row of the caller, or NONE
    known: Flags  # it has a formula
    idle: Flags  # no work by definition: a view, metadata, or a part of an op that is counted as one
    composite: Flags  # its parts do the work, if they are recorded
    covered: Flags  # a descendant carries its work


def rows_of(ops: pl.DataFrame, table: pl.DataFrame, column: str) -> Rows:
    """Return for each row of `table` the row in `ops` with the ID in `column`, in the same burst; or NONE."""
    if not ops.height:
        return np.full(table.height, NONE)
    extent = _extent(ops)
    keys, wanted = _keys(extent, ops, "id"), _keys(extent, table, column)
    most = int(keys.max())
    if most <= _DENSE * len(keys):
        place = np.full(most + 2, NONE)
        known = np.flatnonzero(keys >= 0)[::-1]  # the first of equal ids counts
        place[keys[known]] = known
        return place[np.where((wanted >= 0) & (wanted <= most), wanted, most + 1)]
    order = np.argsort(keys, kind="stable")
    rows = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where((wanted >= 0) & (keys[rows] == wanted), rows, NONE)


class _Extent(NamedTuple):
    """The phases of a table of ops, its first and last burst, and its largest ID."""

    phases: list[str]
    low: int
    high: int
    most: int


def _extent(ops: pl.DataFrame) -> _Extent:
    phases, burst = pl.col("phase").fill_null("").unique().sort().implode(), pl.col("burst")
    bounds = {"low": burst.min(), "high": burst.max(), "most": pl.col("id").max()}
    return _Extent(*ops.select(phases, **{name: bound.fill_null(0) for name, bound in bounds.items()}).row(0))


def _keys(of: _Extent, table: pl.DataFrame, column: str) -> Rows:
    """Return one number per burst and ID, as IDs may repeat across bursts; negative if one is missing."""
    phases = pl.col("phase").fill_null("").cast(pl.Enum(of.phases), strict=False).to_physical()
    columns = {
        "phase": phases.cast(pl.Int64).fill_null(NONE),
        "burst": pl.col("burst").cast(pl.Int64).fill_null(of.low - 1),
        "number": pl.col(column).cast(pl.Int64).fill_null(NONE),
    }
    phase, burst, number = (values.to_numpy() for values in table.select(**columns))
    usable = (number >= 0) & (number <= of.most) & (phase >= 0) & (burst >= of.low - 1) & (burst <= of.high)
    code = phase * (of.high - of.low + 2) + (burst - (of.low - 1))
    return np.where(usable, code * (of.most + 1) + number, NONE)


def grow(ops: pl.DataFrame) -> Tree:
    """Build the tree of `ops` (columns id, parent, name, phase, burst)."""
    parent = rows_of(ops, ops, "parent")
    names = filled(ops["name"], "").unique()
    codes = _codes(filled(ops["name"], ""), names)
    inside = below(parent, _flags(names, codes, COUNTED_AS_ONE.__contains__))
    known = _flags(names, codes, is_known) & ~inside
    composite = _flags(names, codes, lambda n: n in COMPOSITE or n.startswith("aten::_foreach_"))
    product = _flags(names, codes, is_product)
    move = _flags(names, codes, MOVES.__contains__)
    parts = np.where(product, _above(parent, product), _above(parent, known & ~move))
    parts |= move & _above(parent, known)
    covered = (composite & parts) | _wraps_itself(parent, codes, known)
    idle = _flags(names, codes, WITHOUT_WORK.__contains__) | inside
    return Tree(parent, known, idle, composite, covered)


def signatures(ops: pl.DataFrame, rows: Rows) -> pl.Series:
    """Return a hash of the name and arguments of each op in `rows`."""
    calls = ops.select(pl.struct("name", "shapes", "dtypes", "values").alias("call"))[rows]
    return calls["call"].hash()


def nearest(tree: Tree, rows: Rows) -> Rows:
    """Return the op that owns each row's work: itself or its nearest ancestor with a formula; else NONE."""
    owners = np.where((rows >= 0) & tree.known[rows], rows, NONE) if len(tree.known) else rows.copy()
    climbing = np.flatnonzero((owners == NONE) & (rows >= 0))
    current = rows[climbing]
    while len(climbing):
        current = tree.parent[current]
        owned = (current >= 0) & tree.known[current] & ~tree.covered[current]
        owners[climbing[owned]] = current[owned]
        going = (current >= 0) & ~owned
        climbing, current = climbing[going], current[going]
    return owners


def _codes(values: pl.Series, names: pl.Series) -> Rows:
    codes = pl.Series(np.arange(len(names)))
    if not len(names):
        return codes.to_numpy()
    return values.replace_strict(names, codes, return_dtype=pl.Int64).to_numpy()


def _flags(names: pl.Series, codes: Rows, test: Callable[[str], bool]) -> Flags:
    return np.fromiter((test(name) for name in names), dtype=bool, count=len(names))[codes]


def _above(parent: Rows, marked: Flags) -> Flags:
    """Return a mask of the rows with a marked descendant."""
    above = np.zeros(len(parent), dtype=bool)
    frontier = np.flatnonzero(marked)
    while len(frontier):
        frontier = parent[frontier]
        frontier = frontier[(frontier >= 0) & ~above[frontier]]
        above[frontier] = True
    return above


def below(parent: Rows, marked: Flags) -> Flags:
    """Return a mask of the rows with a marked ancestor."""
    under = np.zeros(len(parent), dtype=bool)
    while marked.any():
        reached = (parent >= 0) & (marked | under)[parent] & ~under
        if not reached.any():
            break
        under |= reached
    return under


def _wraps_itself(parent: Rows, codes: Rows, known: Flags) -> Flags:
    """Return a mask of the rows whose child is the same operator, as in an overload for a scalar argument."""
    wraps = np.zeros(len(parent), dtype=bool)
    inner = np.flatnonzero(known & (parent >= 0))
    outer = parent[inner]
    wraps[outer[codes[outer] == codes[inner]]] = True
    return wraps


def with_own_time(ops: pl.DataFrame) -> pl.DataFrame:
    """Return `ops` with `took`, their nanoseconds without the ops beneath them."""
    ops = ops.with_columns(took=pl.col("end_ns") - pl.col("start_ns"))
    beneath = ops.group_by(id="parent").agg(beneath=pl.col("took").sum())
    ops = ops.join(beneath, on="id", how="left")
    return ops.with_columns(took=pl.col("took") - pl.col("beneath").fill_null(0))
