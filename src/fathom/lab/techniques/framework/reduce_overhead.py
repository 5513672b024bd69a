"""
title: torch.compile that replays graphs
saves: host time and launch latency
idea: >-
  What the compiler made is still launched kernel by kernel. In the mode reduce-overhead it is captured into
  CUDA graphs, with buffers that the compiler manages, and each call is one replay.
cost: >-
  Inputs are copied into the graph's own buffers, memory for them stays allocated, and a result lives until
  the next call only: it has to be cloned to be kept.
not_when: >-
  Kernels are long, shapes change (each one is captured anew), or inputs are large and move from call to
  call.
shows:
  - what: cudaGraphLaunch calls
    plain: none
    tuned: one a call
findings: [host-launch-bound, framework-not-compiled]
needs: {gpu: true}
latency: included
cache: warm
"""
# Only on a GPU: the mode is about CUDA graphs.

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fathom.lab import Draw

LAYERS, WIDTH = 24, 256


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    return draw.normal(32, WIDTH), draw.normal(LAYERS, WIDTH, WIDTH, scale=WIDTH**-0.5)


def _layers(x: Tensor, weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + F.gelu(F.layer_norm(x @ weight, (WIDTH,)))
    return x


@cache
def _compiled(mode: str) -> Any:
    return torch.compile(_layers, mode=mode)


def plain(x: Tensor, weights: Tensor) -> Tensor:
    return _compiled("default")(x, weights)


def tuned(x: Tensor, weights: Tensor) -> Tensor:
    torch.compiler.cudagraph_mark_step_begin()
    return _compiled("reduce-overhead")(x, weights).clone()


def reference(x: Tensor, weights: Tensor) -> Tensor:
    return _layers(x, weights)


def work(x: Tensor, weights: Tensor) -> dict[str, float | str]:
    return {"flops": 2.0 * len(x) * weights.numel(), "bytes": weights.nbytes, "unit": "matmul.fp32"}
