"""Install all hooks of a recording, and remove them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.autograd import profiler

from fathom.probe import engines, imports
from fathom.probe.faults import contain, guarded
from fathom.probe.hooks import forward, graphs, loader, optimizer, saving, trials, waits
from fathom.probe.hooks.patches import Patches, after, before
from fathom.probe.knobs import sites, witness
from fathom.probe.session import Session

_patches = Patches()
_handles: list[Any] = []
LEAVING, ASIDE = "the end of the recording", "stepping aside for the program's profiler"


def _end_at_exit(session: Session, patches: Patches) -> None:
    """End the recording properly when the program calls `os._exit`, which skips exit handlers."""
    ending = guarded(LEAVING)(session.end)
    patches.wrap(os, "_exit", before(lambda *_, **__: ending("os._exit")))


def _step_aside(session: Session, patches: Patches) -> None:
    """Suspend our bursts while the program prepares and runs its profiler: a process has only one Kineto."""

    @guarded(ASIDE)
    def taken(*_: Any, **__: Any) -> None:
        session.step_aside()

    @guarded(ASIDE)
    def given_back(*_: Any, **__: Any) -> None:
        session.conductor.foreign_profiler = False

    for name in ("_prepare_profiler", "_enable_profiler"):
        patches.wrap(profiler, name, before(taken))
    patches.wrap(profiler, "_disable_profiler", after(given_back, even_if_it_fails=True))


PARTS: dict[str, Callable[[Session, Patches], list[Any] | None]] = {
    optimizer.PART: optimizer.install,
    loader.PART: loader.install,
    witness.PART: witness.install,  # before the forward calls are watched, for it wants their results
    sites.PART: sites.install,  # before the forward calls likewise
    forward.PART: forward.install,
    graphs.PART: graphs.install,
    "timing waits": waits.install,
    "timing saves": saving.install,
    trials.PART: trials.install,
    LEAVING: _end_at_exit,
    engines.PART: engines.install,
    ASIDE: _step_aside,
}


def install(session: Session) -> None:
    """Install every hook; one that does not fit this version of torch is skipped with a warning."""
    for part, install_part in PARTS.items():
        try:
            _handles.append(install_part(session, _patches))
        except BaseException as error:
            contain(part, error)


def remove() -> None:
    """Remove all hooks."""
    while _handles:
        for handle in _handles.pop() or ():
            handle.remove()
    imports.forget()
    _patches.undo()
