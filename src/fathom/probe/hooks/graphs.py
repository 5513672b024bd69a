"""CUDA graphs: each replay may be a step, and a capture is a wait whose work is recorded."""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.session import Session

PART = "watching CUDA graphs"


def install(session: Session, patches: Patches) -> None:
    """Watch `CUDAGraph.replay`, and the time between `capture_begin` and `capture_end`."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None:
        return
    began: dict[int, int] = {}

    @guarded(PART)
    def replayed(which: Any) -> None:
        session.signal("replay", id(which), grad=torch.is_grad_enabled())

    @guarded(PART)
    def before_capture(which: Any) -> None:
        began[id(which)] = time.time_ns()
        session.conductor.capture_begins()

    @guarded(PART)
    def after_capture(which: Any) -> None:
        session.conductor.capture_ends()
        session.wait("capture", began.pop(id(which), time.time_ns()), time.time_ns(), "CUDA graph")

    patches.wrap(graph, "replay", lambda original: _around(original, after=replayed))
    patches.wrap(graph, "capture_begin", lambda original: _around(original, before=before_capture))
    patches.wrap(graph, "capture_end", lambda original: _around(original, after=after_capture))


def _around(original: Any, before: Any = None, after: Any = None) -> Any:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            if after is not None:
                after(self)

    return wrapper
