"""`os._exit` skips exit handlers, so pending records are written before it."""

from __future__ import annotations

import functools
import os
from typing import Any

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> None:
    """End the recording properly when the program calls `os._exit`, as forked workers do."""
    ending = guarded("the end of the recording")(session.end)

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def _exit(status: int) -> Any:
            ending("os._exit")
            return original(status)

        return _exit

    patches.wrap(os, "_exit", around)
