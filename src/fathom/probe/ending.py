"""End a program interrupted by `--stop-after` without tracebacks of the interruption."""

from __future__ import annotations

import sys
import threading
from typing import Any

CUT_OFF = (KeyboardInterrupt, EOFError, OSError)  # raised in a thread that loses its peers


def end_quietly() -> None:
    """Silence interrupts, and threads that lose their peers, from now on."""
    tell, tell_of_thread = sys.excepthook, threading.excepthook

    def of_main(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            tell(kind, error, trace)

    def of_thread(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, CUT_OFF):
            tell_of_thread(failure)

    sys.excepthook, threading.excepthook = of_main, of_thread
