"""Install all hooks of a recording, and remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fathom.probe import engines, imports
from fathom.probe.faults import contain
from fathom.probe.hooks import forward, graphs, leaving, loader, optimizer, profiler, saving, trials, waits
from fathom.probe.hooks.patches import Patches
from fathom.probe.knobs import sites, witness
from fathom.probe.session import Session

_patches = Patches()
_handles: list[Any] = []
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
    "the end of the recording": leaving.install,
    engines.PART: engines.install,
    "stepping aside for the program's profiler": profiler.install,
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
