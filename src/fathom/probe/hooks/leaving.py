"""`os._exit` skips exit handlers, so pending records are written before it."""

from __future__ import annotations

import os

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, before
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> None:
    """End the recording properly when the program calls `os._exit`, as forked workers do."""
    ending = guarded("the end of the recording")(session.end)
    patches.wrap(os, "_exit", before(lambda *_, **__: ending("os._exit")))
