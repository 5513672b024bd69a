"""Compile a program with torch.compile.

    fathom lab run compiled-fusion max-autotune graph-break regional-compilation

eager launches a chain of kernels that compiled_fusion fuses; max_autotune also fuses into products. branching
breaks the graph on a tensor's value, graph_break does not. as_a_whole compiles a model of equal blocks;
regional_compilation compiles one block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw, normal, traffic

ROWS, COLUMNS = (16384, 16), (8192, 24)  # on a GPU, on a processor
Given = tuple[Tensor, Tensor, Tensor]


@cache
def _compiled(function: Any, mode: str = "default") -> Any:
    return torch.compile(function, mode=mode)


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    draw = Draw(seed, device)
    rows, columns = draw.shape([ROWS, COLUMNS])
    x, bias = draw.normal(rows, columns, dtype=draw.dtype), draw.normal(columns)
    return x, bias, draw.normal(rows, columns, dtype=draw.dtype)


chain_work = traffic(3)


def _chain(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    hidden = F.silu(x + bias.to(x.dtype))
    return hidden * residual + 0.5 * hidden


def eager(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return _chain(x, bias, residual)


def compiled_fusion(x: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """title: Fuse elementwise chains with torch.compile
    pair: {group: framework, plain: eager, work: chain_work}
    saves: HBM bandwidth and launches
    idea: Each operation of an eager chain reads its input from HBM and writes its output back. The compiler
      makes one kernel of the chain, with one read, one write and everything else in registers.
    cost: Bytes fall by about the number of operations. Compilation takes seconds at first, and again for new
      shapes.
    not_when: Matrix products dominate the step, shapes change all the time, or the tensors fit in L2 and the
      device waits for launches anyway (use a CUDA graph). Special functions soon become the bottleneck. A
      second sigmoid in the chain made the kernel 12 % slower on an H200, and with gelu's tanh it reached 77 %
      of HBM's ceiling.
    shows:
      kernel launches in the chain: one per operation → one
      dram__bytes_read.sum + dram__bytes_write.sum: about twice the tensor per operation → about twice the
        tensor
    tips: [frameworks.compile, operators.elementwise]
    findings: {kernels-unfused-elementwise: 1, framework-not-compiled: 1}
    proof: {precision: bf16}"""
    return _compiled(_chain)(x, bias, residual)


# A product and what follows it
def layer_inputs(seed: int, device: str | None = None) -> Given:
    draw = Draw(seed, device)
    rows, narrow, wide = draw.shape([(32768, 24), (256, 16), (2048, 48)])
    x, gate = draw.normal(rows, narrow, dtype=draw.dtype), draw.normal(rows, wide, dtype=draw.dtype)
    return x, draw.normal(wide, narrow, dtype=draw.dtype, scale=narrow**-0.5), gate


def _layer(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return F.silu(F.linear(x, weight)) * gate + 1.0


def by_library(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    return _compiled(_layer)(x, weight, gate)


def max_autotune(x: Tensor, weight: Tensor, gate: Tensor) -> Tensor:
    """title: Let torch.compile tune matmuls
    pair: {group: framework, plain: by_library, inputs: layer_inputs, reference: _layer, work: layer_work}
    saves: time of products whose shape the library handles badly, and passes over their results
    idea: In its default mode the compiler leaves products to cuBLAS and puts the operations that follow into
      a separate kernel, which reads the product again. With max-autotune it generates Triton products of
      several tile sizes, with these operations fused, times them and the library's, and keeps the fastest.
    cost: Minutes of compilation for a model at first; choices are kept on disk. Two passes over each result
      are saved where a generated kernel wins.
    not_when: Products are large and square, where cuBLAS wins and only compilation gets longer. Shapes
      change, since each is tuned anew. Launches are the bottleneck (use reduce-overhead, or max-autotune with
      graphs).
    shows:
      kernel families of the chain: a product of cuBLAS, and triton_poi_fused → triton_tem_fused, where it won
      dram__bytes_write.sum: each product, and the result computed from it → the result
    tips: [frameworks.max-autotune]
    no_finding: a product below its ceiling has no single cause; Headroom in the report names this technique.
    needs: {gpu: true, torch: "2.1", packages: [triton]}"""
    return _compiled(_layer, "max-autotune-no-cudagraphs")(x, weight, gate)


def layer_work(x: Tensor, weight: Tensor, gate: Tensor) -> dict[str, float | str]:
    moved = x.nbytes + weight.nbytes + 2 * gate.nbytes
    return {"flops": 2.0 * x.numel() * len(weight), "bytes": moved, "unit": "matmul.bf16"}


# A branch on a tensor's value
gated = normal(((2048, 16), 1024), (1,))


def _branching(x: Tensor, gate: Tensor) -> Tensor:
    x = torch.tanh(x) * 2
    x = x * 0.5 if gate.item() > 0 else x * 0.25
    return torch.sin(x) + 1


def _selecting(x: Tensor, gate: Tensor) -> Tensor:
    x = torch.tanh(x) * 2
    x = torch.where(gate > 0, x * 0.5, x * 0.25)
    return torch.sin(x) + 1


def branching(x: Tensor, gate: Tensor) -> Tensor:
    return _compiled(_branching)(x, gate)


def graph_break(x: Tensor, gate: Tensor) -> Tensor:
    """title: Keep a branch on a tensor's value in the compiled graph
    pair: {group: framework, plain: branching, inputs: gated, reference: _selecting, work: gated_work}
    saves: host time, and fusion across the break
    idea: An `if` on a tensor's value, an `.item()` or a print breaks the graph that torch.compile traces. The
      rest becomes another graph, and the host waits for the value in between. torch.where computes both sides
      and selects.
    cost: A break costs the guards and calls of another graph, a synchronisation, and a tensor that is written
      and read again. Selecting computes the other side too.
    not_when: The other side is expensive and rarely taken (torch.cond keeps the branch inside the graph).
    shows:
      graphs that the compiler made (TORCH_LOGS=graph_breaks): two or three → one
      ledger, idle by synchronisation: once per call → none
    tips: [frameworks.graph-breaks]
    findings: {host-graph-breaks: 1, host-sync-item: 4}
    proof: {latency: included}"""
    return _compiled(_selecting)(x, gate)


gated_work = traffic(2)


# Blocks that a model repeats
BLOCKS = 8


def blocks(seed: int, device: str | None = None) -> tuple[Tensor, list[Tensor]]:
    draw = Draw(seed, device)
    rows, width = draw.size(gpu=1024, cpu=8), draw.size(gpu=512, cpu=16)
    return draw.normal(rows, width), [draw.normal(width, width, scale=width**-0.5) for _ in range(BLOCKS)]


def _block(x: Tensor, weight: Tensor) -> Tensor:
    return x + torch.tanh(F.layer_norm(x, x.shape[-1:]) @ weight)


def _blocks(block: Callable[..., Any], x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = block(x, weight)
    return x


def _model(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _blocks(_block, x, weights)


def _afresh(run: Callable[[], Tensor]) -> Tensor:
    """Run with all caches empty, so that everything is compiled again."""
    from torch._inductor.utils import fresh_cache

    torch.compiler.reset()
    with fresh_cache(), torch.no_grad():
        return run()


def as_a_whole(x: Tensor, weights: list[Tensor]) -> Tensor:
    return _afresh(lambda: torch.compile(_model)(x, weights))


def regional_compilation(x: Tensor, weights: list[Tensor]) -> Tensor:
    """title: Compile the block that a model repeats
    pair: {group: framework, plain: as_a_whole, inputs: blocks, reference: _model}
    saves: time of the first compilation
    idea: A model of equal blocks that is compiled as a whole is traced and lowered block by block in one
      graph, and the time grows with their number. Compiled as a region, one block's code serves them all.
    cost: No fusion across blocks, and one guarded call per block, some ten microseconds. Here a call compiles
      without any cache on disk and runs once.
    not_when: The program runs for hours with small blocks (fusion and calls matter more), the caches on disk
      are warm, or blocks differ in what is traced, so that each is compiled anyway.
    shows: {waits for compilation before the first step: grow with the blocks → those of one block}
    tips: [frameworks.regional-compilation]
    findings: {host-compiling-in-steps: 1}
    needs: {gpu: true, torch: "2.8", packages: [triton]}
    proof: {latency: included, cache: warm}"""
    return _afresh(lambda: _blocks(torch.compile(_block), x, weights))
