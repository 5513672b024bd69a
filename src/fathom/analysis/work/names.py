"""Operators that do no work of their own: views and metadata, and those whose parts do it."""

from __future__ import annotations


def _aten(text: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in text.split())


# views, metadata, allocation: nothing is read or written
WITHOUT_WORK = _aten(
    "alias as_strided chunk detach detach_ diagonal empty empty_like empty_permuted empty_strided expand "
    "expand_as flatten is_complex is_floating_point is_nonzero is_pinned is_same_size item lift lift_fresh "
    "movedim moveaxis narrow new_empty new_empty_strided permute record_stream requires_grad_ resize_ "
    "resize_as_ resolve_conj resolve_neg result_type select set_ set_data slice split split_with_sizes "
    "squeeze squeeze_ swapaxes swapdims t t_ tensor_split transpose transpose_ unbind unflatten unfold "
    "unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ values view view_as "
    "view_as_complex view_as_real _conj _local_scalar_dense _neg_view _reshape_alias _unsafe_view"
) | {"detach", "torch::autograd::AccumulateGrad", "TorchDynamo Cache Lookup"}

# they only move data: a part that moves does not stand for a whole that computes
MOVES = _aten("copy_ fill_ zero_ _foreach_copy_ _foreach_zero_")

# the parts do the work, where the recording shows them
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

# Their parts see less: on CUDA index_select gathers by an index that is spread over rows, but not moved.
WHOLE = {"aten::index_select"}
