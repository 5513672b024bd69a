"""CUDA graphs: each replay may be a step, and each capture is recorded as a wait with its ops."""

from __future__ import annotations

from typing import Any

import torch

from fathom.pristine import time
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, before
from fathom.probe.session import Session

PART = "watching CUDA graphs"


def install(session: Session, patches: Patches) -> None:
    """Watch `CUDAGraph.replay`, and the time between `capture_begin` and `capture_end`."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None:
        return
    began: dict[int, int] = {}

    @guarded(PART)
    def replayed(which: Any, *_: Any, **__: Any) -> None:
        session.signal("replay", id(which), grad=torch.is_grad_enabled())

    @guarded(PART)
    def begins(which: Any, *_: Any, **__: Any) -> None:
        began[id(which)] = time.time_ns()
        session.conductor.capture_begins()

    @guarded(PART)
    def ends(which: Any, *_: Any, **__: Any) -> None:
        session.conductor.capture_ends()
        session.wait("capture", began.pop(id(which), time.time_ns()), time.time_ns(), "CUDA graph")

    patches.wrap(graph, "replay", after(replayed, even_if_it_fails=True))
    patches.wrap(graph, "capture_begin", before(begins))
    patches.wrap(graph, "capture_end", after(ends, even_if_it_fails=True))
