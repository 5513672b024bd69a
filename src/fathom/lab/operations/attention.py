"""Compute scaled dot-product attention with torch's kernels.

    fathom lab run flash-attention cudnn-attention sliding-window document-mask

written_out stores the scores; flash_attention does not. cudnn_attention replaces a pinned flash backend.
dense_window and dense_documents read a mask of length by length; sliding_window and document_mask give
FlexAttention the rule of the mask.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fathom.lab import Draw, matmul_unit, normal

HEADS = ((4, 1), (16, 2), (4096, 48), (128, 16))  # batch, heads, length, size: on a GPU, on a processor
inputs = normal(HEADS, HEADS, HEADS, narrow=True)


def attention_work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    flops = 2.0 * batch * heads * length**2 * size
    return {"flops": flops, "bytes": 4 * q.nbytes, "unit": matmul_unit(q)}


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = q.shape[-2]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    return F.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v


def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """title: Attention that never writes its scores
    pair: {group: framework, plain: written_out, work: attention_work}
    saves: HBM bandwidth and memory, both quadratic in the length
    idea: Written out, attention stores a matrix of length by length twice. scaled_dot_product_attention
      processes it in tiles with a running maximum and sum, so the scores stay in registers and shared memory.
    cost: Bytes fall from about 8 B H L² to those of q, k, v and the output. FLOPs stay the same; a causal
      mask halves them, which the written form cannot exploit.
    not_when: Sequences are so short that launches dominate, the scores themselves are needed, or a dense
      custom mask selects another backend (use is_causal or FlexAttention).
    shows:
      kernel families in the attention: two products, a mask, a scaling and a softmax → one (cudnn or flash)
      peak memory: grows with the square of the length → grows with the length
    tips: [operators.fused-attention, operators.causal-flag]
    findings: {kernels-math-attention: 1, kernels-materialised-mask: 1}"""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


LONG = (4, (8192, 32), 16, 128)  # batch, length, heads, size: as projections leave them


def long_inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    q, k, v = (draw.normal(*draw.shape(LONG), dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    return q, k, v


def pinned_flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def cudnn_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """title: Use cuDNN's attention instead of a pinned backend
    pair: {group: framework, plain: pinned_flash, inputs: long_inputs, reference: head_by_head, work:
      attention_work}
    saves: tensor-core time
    idea: Programs pin the backend of scaled_dot_product_attention that was best on an older chip, or that a
      library asked for. The flash kernels in torch are of the second generation and feed tensor cores with
      mma.sync. cuDNN's are made for Hopper, with wgmma, the copy engine and specialised warps.
    cost: Building a plan for each new shape, some ten milliseconds.
    not_when: Nothing is pinned, since recent versions of torch prefer cuDNN on Hopper. Shapes change all the
      time, heads are larger than 256, or the chip is older than Hopper, where flash is as good.
    shows:
      kernel family of the attention: pytorch_flash::flash_fwd_kernel → cudnn_generated_fort_native_sdpa_sm90
      tensor pipe active: about a third → more than half
    tips: [operators.attention-backend]
    no_finding: the flash backend is a fused one, and the best choice on other chips.
    needs: {gpu: true, capability: 9.0, torch: "2.5"}"""
    # Only on a GPU: the processor has neither backend.
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def head_by_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute head by head, because all scores at once would fill the device in double precision."""
    batch, heads, _, _ = q.shape
    out = torch.empty_like(q)
    with sdpa_kernel(SDPBackend.MATH):
        for sample in range(batch):
            for head in range(heads):
                at = sample, slice(head, head + 1)
                out[at] = F.scaled_dot_product_attention(q[at], k[at], v[at], is_causal=True)
    return out


# A causal window
WINDOW = 512
WINDOWED = ((2, 1), (16, 2), (8192, 64), (64, 16))
window_inputs = normal(WINDOWED, WINDOWED, WINDOWED, narrow=True)


def _allowed(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query - key < WINDOW)


@cache
def _dense(length: int, device: torch.device) -> Tensor:
    at = torch.arange(length, device=device)
    return _allowed(None, None, at[:, None], at[None, :])


def dense_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_dense(q.shape[2], q.device))


@cache
def _flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@cache
def _blocks(length: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(_allowed, None, None, length, length, device="cuda")


def sliding_window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """title: Give FlexAttention the rule of a window
    pair: {group: framework, plain: dense_window, reference: dense_window, inputs: window_inputs, work:
      window_work}
    saves: tensor-core time, and HBM bandwidth of the mask
    idea: With a dense mask, attention computes every pair and discards most. FlexAttention compiles the rule
      of the mask into the kernel and skips tiles in which no pair is allowed.
    cost: Compilation at first, and a block mask per shape. Pairs fall from half the square of the length to
      length times window.
    not_when: The mask is only causal (use is_causal), or the window is as long as the sequence.
    shows:
      kernel family of the attention: fmha with a bias, or the math backend → triton_flex_attention
    tips: [operators.block-masks]
    findings: {kernels-materialised-mask: 4}
    needs: {gpu: true, torch: "2.5", packages: [triton]}"""
    # Only on a GPU: on a processor FlexAttention takes a C++ compiler and minutes.
    return _flex()(q, k, v, block_mask=_blocks(q.shape[2]))


def window_work(q: Tensor, k: Tensor, v: Tensor) -> dict[str, float | str]:
    batch, heads, length, size = q.shape
    pairs = WINDOW * length - WINDOW * (WINDOW - 1) / 2
    return {"flops": 4.0 * batch * heads * pairs * size, "bytes": 4 * q.nbytes, "unit": "matmul.bf16"}


# Documents packed in one row
LAYERS, TILE = 8, 128
Packed = tuple[Tensor, Tensor, Tensor, Tensor]


def packed(seed: int, device: str | None = None) -> Packed:
    draw = Draw(seed, device)
    shape = draw.shape([1, (16, 2), (8192, 2 * TILE), (64, 16)])
    q, k, v = (draw.normal(*shape, dtype=draw.dtype) for _ in range(3))
    starts = draw.integers(0, draw.size(gpu=768, cpu=40), shape[2]) == 0  # the mean length of a document
    return q, k, v, starts.cumsum(0).int()


def _layered(attend: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    for _ in range(LAYERS):
        q = attend(q, k, v)
    return q


def dense_documents(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    at = torch.arange(len(document), device=document.device)
    mask = (at[:, None] >= at) & (document[:, None] == document)
    return _layered(partial(F.scaled_dot_product_attention, attn_mask=mask), q, k, v)


@cache
def _static_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """Return the count of tiles in each row, and their columns first, broadcast over batches and heads."""
    order = tiles.int().argsort(dim=1, descending=True, stable=True)
    return tiles.sum(dim=1).int()[None, None], order.int()[None, None]


def _tiles(document: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the tiles in which only some pairs are allowed, then those in which all are."""
    first, last = document[::TILE], document[TILE - 1 :: TILE]
    before = torch.ones(len(first), len(first), dtype=torch.bool, device=first.device).tril(-1)
    full = before & (first[None, :] == last[:, None])
    touched = before & (last[None, :] == first[:, None]) | torch.eye(len(first), device=first.device).bool()
    return *_listed(touched & ~full), *_listed(full)


def document_mask(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
    """title: Give FlexAttention the documents of a packed row
    pair: {group: framework, plain: dense_documents, reference: dense_documents, inputs: packed}
    saves: tensor-core time, and HBM bandwidth of the mask
    idea: Packed rows hold several documents that must not attend to one another. With a dense mask, attention
      reads a matrix of length by length in every layer and computes all pairs. FlexAttention takes the rule,
      and lists of the tiles in which some or all pairs are allowed. The first and last document of each tile
      suffice to make these lists.
    cost: A block mask per batch, which the layers share (create_block_mask would evaluate the rule for every
      pair), and compilation at first. Pairs fall from the square of the row's length to the sum of the
      squares of the documents' lengths.
    not_when: Rows hold one document each (use is_causal), only one or two layers use each mask, or documents
      are about as short as a tile of 128.
    shows:
      kernel family of the attention: fmha with a bias, or the math backend → triton_flex_attention
      bytes of the mask: length squared, read by every head of every layer → a number per tile
    tips: [data.packing, operators.block-masks]
    findings: {kernels-materialised-mask: 2}
    needs: {gpu: true, torch: "2.5", packages: [triton]}"""
    from torch.nn.attention.flex_attention import BlockMask

    def allowed(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (document[query] == document[key])

    blocks = BlockMask.from_kv_blocks(*_tiles(document), BLOCK_SIZE=TILE, mask_mod=allowed)
    return _layered(partial(_static_flex(), block_mask=blocks), q, k, v)
