"""Transpose a square float32 matrix, in CUDA C++.

    fathom lab run transpose bank-padding bank-swizzle

by_columns writes down columns, a sector for every element. in_shared transposes tiles in shared memory, where
all lanes of a warp read one bank. bank_padding and bank_swizzle spread these reads over all 32 banks.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fathom.lab import Source, normal, traffic

TILE, BLOCK = 64, (32, 8)
kernels = Source(__file__)

N = (11264, 128)  # on a GPU, on a processor
inputs = normal((N, N))
work = traffic(2)


def reference(x: Tensor) -> Tensor:
    return x.t().contiguous()


def _transposed(kernel: str, x: Tensor) -> Tensor:
    n = len(x)
    out = x.new_empty(n, n)
    kernels.launch(kernel, (n // TILE, n // TILE), BLOCK, out, x, n)
    return out


by_columns = partial(_transposed, "by_columns")
in_shared = partial(_transposed, "in_shared")


def transpose(x: Tensor) -> Tensor:
    """title: Transpose tiles in shared memory
    pair: {group: memory, plain: by_columns}
    saves: HBM bandwidth, in sectors written
    idea: A transpose reads along one dimension and writes along the other, so one of the two is strided. A
      tile that is transposed in shared memory makes both coalesced.
    cost: Every byte also passes through shared memory, at many times the bandwidth of HBM, with one barrier
      per tile.
    not_when: The consumer can read the strided layout (a GEMM takes either), or the matrix fits in L2, which
      merges partially written sectors before they reach HBM.
    shows: {l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum per request: 32 sectors → 4 sectors}
    tips: [operators.no-transposes, memory.transpose-tile]
    findings: {kernels-uncoalesced: 2, kernels-transposes: 1}"""
    return _transposed("padded", x)


def bank_padding(x: Tensor) -> Tensor:
    """title: Pad shared-memory rows against bank conflicts
    pair: {group: memory, plain: in_shared}
    saves: shared-memory bandwidth
    idea: Shared memory has 32 banks of 4 bytes. With rows of 64 floats, a column of the tile lies in one
      bank, and 32 lanes that read it are served one after another. One more float per row spreads the column
      over all banks.
    cost: Reading a column takes 1 pass instead of 32. The tile needs 1/64 more shared memory.
    not_when: The padding reduces occupancy (swizzle instead), wide accesses need rows aligned to 16 bytes, or
      a tensor memory copy fills the tile (it swizzles by itself).
    shows: {l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum per wavefront: 31 of 32 → about 0}
    tips: [memory.bank-padding]
    findings: {kernels-bank-conflicts: 1}"""
    return _transposed("padded", x)


def bank_swizzle(x: Tensor) -> Tensor:
    """title: Swizzle shared memory against bank conflicts
    pair: {group: memory, plain: in_shared}
    saves: shared-memory bandwidth
    idea: The column of an element is XORed with its row. That permutes each row and puts every column into 32
      different banks, without the extra bytes of padding, and wide accesses stay aligned.
    cost: One XOR per access. Reading a column takes 1 pass instead of 32.
    not_when: Padding costs nothing here and is easier to read. Swizzling is the only way where the tiles of a
      pipeline fill shared memory or a tensor core reads them by descriptor.
    shows: {l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum per wavefront: 31 of 32 → about 0}
    tips: [memory.bank-swizzle]
    findings: {kernels-bank-conflicts: 2}"""
    return _transposed("swizzled", x)
