"""
title: A branch on a tensor's value, kept inside the compiled graph
saves: host time, and fusion across the break
idea: >-
  An `if` on a tensor's value, an `.item()` or a print ends the graph that torch.compile traces: what
  follows is another graph, and the host waits for the value in between. torch.where computes both sides and
  selects.
cost: >-
  A break costs the guards and calls of a further graph, a synchronisation, and a tensor written and read
  again. Selecting computes the other side too.
not_when: >-
  The side that is not taken is expensive, and rarely taken: torch.cond keeps the branch inside the graph.
shows:
  - what: graphs that the compiler made (TORCH_LOGS=graph_breaks)
    plain: two or three
    tuned: one
  - what: ledger, idle by synchronisation
    plain: once a call
    tuned: none
findings: [host-graph-breaks, host-sync-item]
latency: included
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fathom.lab import Draw


def inputs(seed: int, device: str | None = None) -> tuple[Tensor, Tensor]:
    draw = Draw(seed, device)
    rows = draw.size(gpu=2048, cpu=16)
    return draw.normal(rows, 1024), draw.normal(1)


def _branching(x: Tensor, gate: Tensor) -> Tensor:
    x = torch.tanh(x) * 2
    x = x * 0.5 if gate.item() > 0 else x * 0.25
    return torch.sin(x) + 1


def _selecting(x: Tensor, gate: Tensor) -> Tensor:
    x = torch.tanh(x) * 2
    x = torch.where(gate > 0, x * 0.5, x * 0.25)
    return torch.sin(x) + 1


@cache
def _compiled(function: Any) -> Any:
    return torch.compile(function)


def plain(x: Tensor, gate: Tensor) -> Tensor:
    return _compiled(_branching)(x, gate)


def tuned(x: Tensor, gate: Tensor) -> Tensor:
    return _compiled(_selecting)(x, gate)


def reference(x: Tensor, gate: Tensor) -> Tensor:
    return _selecting(x, gate)


def work(x: Tensor, gate: Tensor) -> dict[str, float]:
    return {"bytes": 2 * x.nbytes}
