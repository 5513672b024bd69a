"""Give way to the program's own profiler: a process has only one Kineto."""

from __future__ import annotations

import functools
from typing import Any

from torch.autograd import profiler

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> None:
    """Step aside from when the program prepares its profiler until it is done."""

    @guarded("stepping aside for the program's profiler")
    def taken() -> None:
        session.step_aside()

    @guarded("stepping aside for the program's profiler")
    def given_back() -> None:
        session.conductor.foreign_profiler = False

    for name in ("_prepare_profiler", "_enable_profiler"):
        patches.wrap(profiler, name, lambda original: _around(original, before=taken))
    patches.wrap(profiler, "_disable_profiler", lambda original: _around(original, after=given_back))


def _around(original: Any, before: Any = None, after: Any = None) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before()
        try:
            return original(*args, **kwargs)
        finally:
            if after is not None:
                after()

    return wrapper
