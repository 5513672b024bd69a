"""End a process cleanly: a fork that inherited Kineto, or a program that `--stop-after` interrupts."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

EXCEPTION = "exception "  # prefix of the reason for an end
CUT_OFF = (KeyboardInterrupt, EOFError, OSError)  # raised in a thread that loses its peers


def end_quietly() -> None:
    """Print no traceback for interrupts, nor for threads that lose their peers, from now on."""
    of_program, of_threads = sys.excepthook, threading.excepthook

    def of_main(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            of_program(kind, error, trace)

    def of_thread(failure: threading.ExceptHookArgs) -> None:
        if not issubclass(failure.exc_type, CUT_OFF):
            of_threads(failure)

    sys.excepthook, threading.excepthook = of_main, of_thread


def skip_destructors() -> None:
    """Let this forked process exit without C++ destructors.

    Kineto's destructor would wait forever for a thread that does not exist in the fork.
    `exit` runs handlers last in, first out: streams are flushed, then `_exit(status)` ends it.
    """
    library = ctypes.CDLL(None)
    if all(hasattr(library, name) for name in ("on_exit", "fcloseall", "_exit")):
        library.on_exit(library._exit, None)
        library.on_exit(library.fcloseall, None)
