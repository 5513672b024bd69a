"""
title: A loop whose end the device finds
saves: idle time of the device while the host asks
idea: >-
  An iteration that runs until nothing changes any more asks the device after every round: the host waits
  for the flag, and the device for the next launches. A conditional node of a CUDA graph repeats its body
  as long as a kernel in it says so, and the host launches once.
cost: >-
  Building the graph once for its buffers; a kernel of one thread a round; copies into and out of the
  graph's buffers.
not_when: >-
  Rounds are long, or their number is known: then a plain graph, or many rounds between two questions, is as
  good. The host must not be needed within a round.
shows:
  - what: ledger, idle by synchronisation
    plain: once a round
    tuned: none
  - what: kernel launches from the host
    plain: three a round
    tuned: one graph
findings: [host-sync-item, host-launch-bound]
needs: {capability: 9.0, packages: [cuda.bindings]}
latency: included
cache: warm
"""
# Only on a GPU: the processor has no graphs.

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw, Source
from fathom.lab.driver import done, driver

THREADS = 256
ENOUGH = 2.5e-7  # a change of about four roundings
kernels = Source(__file__)


def inputs(seed: int, device: str | None = None) -> Tensor:
    draw = Draw(seed, device)
    n = draw.size(gpu=512, cpu=16)
    return draw.uniform(n, n)


def _round(x: Tensor, other: Tensor, given: Tensor, changed: Tensor) -> None:
    """Two steps, so that the state is where it was."""
    n = len(given)
    for to, source in ((other, x), (x, other)):
        kernels.launch("relax", -(-n * n // THREADS), THREADS, to, source, given, n, ENOUGH, changed)


def _buffers(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    changed = torch.zeros(1, dtype=torch.int32, device=given.device)
    return torch.zeros_like(given), torch.empty_like(given), changed


def plain(given: Tensor) -> Tensor:
    x, other, changed = _buffers(given)
    while True:
        _round(x, other, given, changed)
        if not changed.item():
            return x
        changed.zero_()


class _Loop:
    """The rounds over buffers of its own, as a graph with one conditional node."""

    def __init__(self, given: Tensor) -> None:
        self.given = given.clone()
        self.x, self.other, self.changed = _buffers(given)
        _round(
            self.x, self.other, self.given, self.changed
        )  # what a kernel needs is loaded before the capture
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
            kernels.launch("again", 1, 1, ctypes.c_uint64(int(self.handle)), self.changed)
            done(cu.cuStreamEndCapture(side.cuda_stream))

    def __call__(self, given: Tensor) -> Tensor:
        self.given.copy_(given)
        self.x.zero_()
        self.changed.zero_()
        done(driver().cuGraphLaunch(self.ready, torch.cuda.current_stream().cuda_stream))
        return self.x.clone()


_loop: list[_Loop] = []


def tuned(given: Tensor) -> Tensor:
    if not _loop:
        _loop.append(_Loop(given))
    return _loop[0](given)


def reference(given: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(torch.zeros_like(given), (1, 1, 1, 1))
    for _ in range(200):
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        padded[1:-1, 1:-1] = 0.2 * (given + around)
    return padded[1:-1, 1:-1].clone()
