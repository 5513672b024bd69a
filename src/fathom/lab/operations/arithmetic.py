"""Compute one result per element, bound by arithmetic, in CUDA C++.

    fathom lab run independent-chains uniform-branches whole-waves launch-bounds

Each technique has its own computation. independent_chains iterates a polynomial of 32 terms, uniform_branches
a quadratic map with two sets of coefficients, and whole_waves one without. launch_bounds transforms blocks of
8 x 8 pixels as JPEG does.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from fathom.lab import Draw, Source, normal, traffic

chains = Source(__file__, "independent_chains")
branches = Source(__file__, "uniform_branches")
waves = Source(__file__, "whole_waves")
transform = Source(__file__, "cosine_transform")


def _mapped(kernels: Source, threads: int, kernel: str, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.launch(kernel, -(-x.numel() // threads), threads, out, x, x.numel())
    return out


# A polynomial, iterated
TERMS, STEPS = 32, 256


def few_elements(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return draw.uniform(128 * (chains.multiprocessors() if draw.device == "cuda" else 2))


def horner(x: Tensor) -> Tensor:
    return _mapped(chains, 128, "horner", x)


def independent_chains(x: Tensor) -> Tensor:
    """title: Split a long dependency chain into short ones
    pair: {group: compute, plain: horner, inputs: few_elements, reference: polynomials, work: polynomial_work}
    saves: time in which the arithmetic units wait for a result
    idea: Horner's rule is one chain, in which each multiply-add waits four cycles for the one before it. Four
      polynomials in the fourth power have chains a quarter as long that run side by side.
    cost: A few more multiplications, and registers for the parts. Where latency is the bottleneck, time falls
      by up to the number of chains.
    not_when: Enough warps hide the latency. With four or more ready warps per scheduler, the extra
      multiplications only cost time. Here there is work for only one.
    shows: {smsp__average_warps_issue_stalled_wait_per_issue_active: the largest stall → about a third of it}
    tips: [compute.chains]
    findings: {kernels-low-occupancy: 1, kernels-batch-too-small: 1}
    proof: {cache: warm}"""
    return _mapped(chains, 128, "by_fours", x)


def polynomials(x: Tensor) -> Tensor:
    y = 0.5 * x
    for _ in range(STEPS):
        value = torch.zeros_like(y)
        for term in reversed(range(TERMS)):
            value = value * y + 0.5 / (term + 1)
        y = 0.5 * x + 0.25 * value
    return y


def polynomial_work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * STEPS * TERMS * x.numel(), "unit": "vector.fp32"}


# A map whose coefficients depend on the sign
def signed(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    return 2 * draw.uniform(draw.size(gpu=1 << 24, cpu=1000)) - 1


def branching(x: Tensor) -> Tensor:
    return _mapped(branches, 256, "branching", x)


def uniform_branches(x: Tensor) -> Tensor:
    """title: Select coefficients instead of branching
    pair: {group: compute, plain: branching, inputs: signed, reference: by_sign, work: by_sign_work}
    saves: issue slots of diverged lanes
    idea: Lanes of a warp that take different branches wait for one another, since the warp executes both.
      Where both sides have the same form, the condition can select coefficients and all lanes follow one
      path.
    cost: One select per coefficient. Time falls from the sum of the two sides to the longer one.
    not_when: The sides have nothing in common, whole warps agree (sorting by kind ensures that), or the sides
      are so short that the compiler predicates them.
    shows: {smsp__thread_inst_executed_per_inst_executed.ratio: about 16 of 32 → about 32}
    tips: [compute.divergence]
    findings: {kernels-divergence: 1}"""
    return _mapped(branches, 256, "selecting", x)


def by_sign(x: Tensor) -> Tensor:
    rise, shift = torch.where(x > 0, 0.125, -0.125), torch.where(x > 0, 0.25, 0.5)
    value = x
    for _ in range(64):
        value = rise * value * value + 0.5 * value + shift * x
    return value


def by_sign_work(x: Tensor) -> dict[str, float | str]:
    return {"flops": 6.0 * 64 * x.numel(), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}


# A map of somewhat more elements than the chip holds threads
def elements(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    blocks = 2 * waves.multiprocessors() + 1 if draw.device == "cuda" else 5
    return draw.uniform(blocks * 8192)


def a_block_a_part(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    waves.launch("a_block_a_part", -(-len(x) // 8192), 1024, out, x, len(x), 8192)
    return out


def whole_waves(x: Tensor) -> Tensor:
    """title: Launch one wave of blocks with a grid-stride loop
    pair: {group: compute, plain: a_block_a_part, inputs: elements, reference: settled, work: settling}
    saves: idle multiprocessors in the last wave
    idea: Blocks run in waves of as many as the chip holds. One block more than a wave takes as long as a
      second wave, in which nearly the whole chip idles. A grid of one wave whose blocks stride over the
      elements has no tail.
    cost: A loop and its index. The split is fixed, so blocks with more work get no help from others.
    not_when: There are many waves (the tail is at most one of them), or blocks differ in length. Then many
      small blocks, scheduled by the hardware, are better.
    shows:
      launch__waves_per_multiprocessor: a little above an integer → one
      sm__ctas_active.avg.pct_of_peak_sustained_elapsed: about half → most of the time
    tips: [compute.whole-waves]
    findings: {kernels-wave-quantisation: 3}"""
    out = torch.empty_like(x)
    waves.launch("one_wave", 2 * waves.multiprocessors(), 1024, out, x, len(x))
    return out


def settled(x: Tensor) -> Tensor:
    value = x
    for _ in range(256):
        value = 0.5 * value + 0.125 * value * value
    return x + value


def settling(x: Tensor) -> dict[str, float | str]:
    return {"flops": 4.0 * 256 * len(x), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}


# The cosine transform of blocks of pixels
SIDE, LANES = 8, 32

pixel_blocks = normal(((3 << 14, 9), SIDE, SIDE, LANES))
transforms_work = traffic(2)


def _transformed(kernel: str, x: Tensor) -> Tensor:
    out, n = torch.empty_like(x), len(x) * LANES
    transform.launch(kernel, -(-n // 128), 128, out, x, n)
    return out


for_any_block = partial(_transformed, "for_any_block")


def launch_bounds(x: Tensor) -> Tensor:
    """title: Tell the compiler the block size
    pair: {group: compute, plain: for_any_block, inputs: pixel_blocks, reference: transforms, work:
      transforms_work}
    saves: traffic of spilled registers
    idea: A multiprocessor has 65,536 registers, so a kernel for blocks of up to 1,024 threads gets 64
      registers per thread, and other values spill to local memory, that is to L1, L2 and HBM. With launch
      bounds of 128, the real block size, the compiler keeps all 64 values of a pixel block in registers.
    cost: Fewer warps at a time, 24 instead of 32 at 80 registers. Each has 64 loads in flight, which is more
      than enough.
    not_when: The kernel does not spill, or it takes many warps with few registers to hide latency. A second
      bound, the minimum blocks per multiprocessor, works the other way.
    shows:
      smsp__inst_executed_op_local_ld.sum + smsp__inst_executed_op_local_st.sum: many → none
      launch__registers_per_thread: 64 → more
    tips: [compute.launch-bounds]
    findings: {kernels-register-spills: 1}
    proof: {reduction: 64}"""
    return _transformed("for_its_block", x)


def transforms(x: Tensor) -> Tensor:
    wave = torch.arange(SIDE, dtype=torch.float64, device=x.device)
    basis = torch.cos((2 * wave[None, :] + 1) * wave[:, None] * math.pi / (2 * SIDE)) / 2
    basis[0] /= math.sqrt(2)
    return torch.einsum("ai,gijn,bj->gabn", basis, x.double(), basis)
