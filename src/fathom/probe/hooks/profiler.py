"""Give way to the program's own profiler: a process has only one Kineto."""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, before
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> None:
    """Suspend our bursts from the time the program prepares its profiler until it has finished."""

    @guarded("stepping aside for the program's profiler")
    def taken(*_: Any, **__: Any) -> None:
        session.step_aside()

    @guarded("stepping aside for the program's profiler")
    def given_back(*_: Any, **__: Any) -> None:
        session.conductor.foreign_profiler = False

    for name in ("_prepare_profiler", "_enable_profiler"):
        patches.wrap(profiler, name, before(taken))
    patches.wrap(profiler, "_disable_profiler", after(given_back, even_if_it_fails=True))
