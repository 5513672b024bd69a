"""Combine each element with its neighbours, in CUDA C++.

    fathom lab run smaller-tiles persistent-steps conditional-graph

smaller_tiles computes a moving average with tiles that let more blocks run. persistent_steps runs all steps
of a diffusion in one kernel, and conditional_graph repeats an iteration on the device until it has converged.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Source, normal, traffic, uniform
from fathom.lab.driver import done, driver

average = Source(__file__, "moving_average")
heat = Source(__file__, "heat")
jacobi = Source(__file__, "jacobi")


# The mean over a window around each element
RADIUS = 8

samples = normal(((1 << 26, 30_000),))
averaging = traffic(2)


def _averaged(kernel: str, tile: int, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    average.launch(kernel, -(-len(x) // tile), 128, out, x, len(x))
    return out


large_tiles = partial(_averaged, "large_tiles", 12032)


def smaller_tiles(x: Tensor) -> Tensor:
    """title: Use tiles small enough for many blocks
    pair: {group: compute, plain: large_tiles, inputs: samples, reference: averages, work: averaging}
    saves: time in which a multiprocessor only loads, or only computes
    idea: A block loads its tile, waits at a barrier, and computes. With 48 KB per block, four blocks fit on a
      multiprocessor, 512 threads of 2,048, and often all are in the same phase. With tiles of 4 KB, sixteen
      blocks fit, and some load while others compute.
    cost: The margins of a tile are read twice, 16 elements per 1,024 instead of per 12,032, mostly from L2.
    not_when: A tile's reuse grows with its size (matrix products), or each thread has enough loads in flight
      by itself. Here each has up to eight of 16 bytes, and the large tile reached 88 % of the ceiling of an
      H200, the small one 95 %. With single loads of 4 bytes they reached 21 and 53 %.
    shows:
      sm__warps_active.avg.pct_of_peak_sustained_active: 25 % → near 100 %
      launch__occupancy_limit_shared_mem: four blocks → no limit
    tips: [compute.occupancy]
    findings: {kernels-low-occupancy: 2}
    proof: {reduction: 17}"""
    return _averaged("small_tiles", 1024, x)


def averages(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool1d(x[None], 2 * RADIUS + 1, stride=1, padding=RADIUS)[0]


# Heat that spreads over a square, many steps of it
STEPS = 128

square = normal(((1024, 20), (1024, 20)))


def step_by_step(x: Tensor) -> Tensor:
    n, places = len(x), (torch.empty_like(x), torch.empty_like(x))
    for step in range(STEPS):
        x, before = places[step % 2], x
        heat.launch("one_step", -(-n * n // 512), 512, x, before, n)
    return x


def persistent_steps(x: Tensor) -> Tensor:
    """title: Run all steps in one persistent kernel
    pair: {group: schedule, plain: step_by_step, inputs: square, reference: spread, work: spreading}
    saves: launches, and the idle time while the chip drains and fills between steps
    idea: A step of two microseconds is followed by a gap of one, plus the time in which the last blocks
      finish and the first of the next kernel start. A kernel whose blocks stay and meet at a barrier in
      global memory between steps is launched once.
    cost: A barrier over the grid takes about a microsecond (an atomic addition per block, then polling). All
      blocks must run at once, so it is a cooperative launch with no more blocks than fit.
    not_when: Steps take longer than some ten microseconds, or a CUDA graph or programmatic dependent launch
      removes the gaps without a hand-written barrier.
    shows:
      kernel launches: one per step → one
      sm__cycles_active.avg / sm__cycles_elapsed.max: two thirds → near one
    tips: [scheduling.persistent-steps]
    findings: {host-launch-bound: 3}
    proof: {cache: warm}"""
    out, other = torch.empty_like(x), torch.empty_like(x)
    arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
    grid = 2 * heat.multiprocessors() if x.is_cuda else 1
    heat.launch("all_steps", grid, 512, out, other, x, len(x), STEPS, arrived, cooperative=True)
    return out


def spread(x: Tensor) -> Tensor:
    for _ in range(STEPS):
        before, x = x, x.clone()
        around = before[:-2, 1:-1] + before[2:, 1:-1] + before[1:-1, :-2] + before[1:-1, 2:]
        x[1:-1, 1:-1] += 0.2 * (around - 4 * before[1:-1, 1:-1])
    return x


def spreading(x: Tensor) -> dict[str, float | str]:
    return {"flops": 7.0 * STEPS * x.numel(), "bytes": 2 * x.nbytes, "unit": "vector.fp32"}


# Jacobi's iteration, until nothing changes
ENOUGH = 2.5e-7  # a change of about four roundings

given_square = uniform((512, 16), (512, 16))


def _round(x: Tensor, other: Tensor, given: Tensor, changed: Tensor) -> None:
    """Run two steps, after which the state is in its original buffer again."""
    n = len(given)
    for to, source in ((other, x), (x, other)):
        jacobi.launch("relax", -(-n * n // 256), 256, to, source, given, n, ENOUGH, changed)


def _buffers(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    changed = torch.zeros(1, dtype=torch.int32, device=given.device)
    return torch.zeros_like(given), torch.empty_like(given), changed


def asking_each_round(given: Tensor) -> Tensor:
    x, other, changed = _buffers(given)
    while True:
        _round(x, other, given, changed)
        if not changed.item():
            return x
        changed.zero_()


class _Loop:
    """A graph that repeats the rounds in one conditional node, with private buffers."""

    def __init__(self, given: Tensor) -> None:
        self.given = given.clone()
        self.x, self.other, self.changed = _buffers(given)
        _round(self.x, self.other, self.given, self.changed)  # kernels are loaded before the capture
        cu = driver()
        self.graph = done(cu.cuGraphCreate(0))
        starts_anew = 1  # CU_GRAPH_COND_ASSIGN_DEFAULT: every launch begins with "go round"
        context = done(cu.cuCtxGetCurrent())
        self.handle = done(cu.cuGraphConditionalHandleCreate(self.graph, context, 1, starts_anew))
        self._capture(self._body(context))
        self.ready = done(cu.cuGraphInstantiate(self.graph, 0))

    def _body(self, context: Any) -> Any:
        cu = driver()
        node = cu.CUgraphNodeParams()
        node.type = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        node.conditional.handle, node.conditional.ctx = self.handle, context
        node.conditional.type = cu.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_WHILE
        node.conditional.size = 1
        done(cu.cuGraphAddNode(self.graph, None, None, 0, node))
        return node.conditional.phGraph_out[0]

    def _capture(self, body: Any) -> None:
        cu, side = driver(), torch.cuda.Stream()
        torch.cuda.synchronize()
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with torch.cuda.stream(side):
            done(cu.cuStreamBeginCaptureToGraph(side.cuda_stream, body, None, None, 0, relaxed))
            _round(self.x, self.other, self.given, self.changed)
            jacobi.launch("again", 1, 1, ctypes.c_uint64(int(self.handle)), self.changed)
            done(cu.cuStreamEndCapture(side.cuda_stream))

    def __call__(self, given: Tensor) -> Tensor:
        self.given.copy_(given)
        self.x.zero_()
        self.changed.zero_()
        done(driver().cuGraphLaunch(self.ready, torch.cuda.current_stream().cuda_stream))
        return self.x.clone()


_loop: list[_Loop] = []


def conditional_graph(given: Tensor) -> Tensor:
    """title: Let the device decide when a loop ends
    pair: {group: schedule, plain: asking_each_round, inputs: given_square, reference: solution}
    saves: GPU idle time while the host asks
    idea: An iteration that runs until nothing changes asks the device after every round. The host waits for
      the flag, and the device for the next launches. A conditional node of a CUDA graph repeats its body as
      long as a kernel in it says so, and the host launches once.
    cost: Building the graph once for its buffers, one small kernel per round, and copies into and out of the
      graph's buffers.
    not_when: Rounds are long or their number is known. Then a plain graph, or many rounds between checks, is
      as good. The host must not be needed within a round.
    shows:
      ledger, idle by synchronisation: once per round → none
      kernel launches from the host: three per round → one graph
    tips: [scheduling.conditional-graph]
    findings: {host-sync-item: 2, host-launch-bound: 8}
    needs: {capability: 9.0, packages: [cuda.bindings]}
    proof: {latency: included, cache: warm}"""
    # Only on a GPU: the processor has no graphs.
    if not _loop:
        _loop.append(_Loop(given))
    return _loop[0](given)


def solution(given: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(torch.zeros_like(given), (1, 1, 1, 1))
    for _ in range(200):
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        padded[1:-1, 1:-1] = 0.2 * (given + around)
    return padded[1:-1, 1:-1].clone()
