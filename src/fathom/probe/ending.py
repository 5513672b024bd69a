"""End a process cleanly: a fork that inherited Kineto, or a program that `--stop-after` interrupts."""

from __future__ import annotations

import atexit
import ctypes
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from fathom.pristine import os
from fathom.probe.launchers import ELASTIC

EXCEPTION = "exception "  # prefix of the reason for an end
STOP = "stop"  # file that asks the parent to end the program
UNCAUGHT, LONGEST = "uncaught", 300  # a note of the exception that ended a process, and its characters
CUT_OFF = (KeyboardInterrupt, EOFError, OSError)  # raised in a thread that loses its peers
WITHOUT_PEERS = (*CUT_OFF, RuntimeError)  # collectives raise it, too


def uncaught() -> BaseException | None:
    """Return the exception that ended this process; Python keeps it when it prints the traceback."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, Exception) else None


def in_words(error: BaseException) -> str:
    """Return an exception's name, with its message if an import failed: others may contain secrets."""
    text = f": {error}".splitlines()[0][:LONGEST] if isinstance(error, ImportError) else ""
    return type(error).__name__ + text


def end_quietly(raw: str) -> None:
    """Print no traceback for interrupts, nor for lost peers, once the program is asked to end.

    A worker of torchrun then succeeds: for a failed one, torchrun would print a traceback.
    """
    of_program, of_threads = sys.excepthook, threading.excepthook
    stop = os.path.join(raw, STOP)

    def of_main(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if not os.path.exists(stop):
            of_program(kind, error, trace)
        elif ELASTIC in os.environ and issubclass(kind, WITHOUT_PEERS):
            _succeed()
        elif not issubclass(kind, KeyboardInterrupt):
            of_program(kind, error, trace)

    def of_thread(failure: threading.ExceptHookArgs) -> None:
        if not os.path.exists(stop) or not issubclass(failure.exc_type, CUT_OFF):
            of_threads(failure)

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Python sets `last_type` before it calls the hook: the loss of peers already ends the program then.
        if not os.path.exists(stop) or getattr(sys, "last_type", None) is None:
            signal.default_int_handler(number, frame)

    sys.excepthook, threading.excepthook = of_main, of_thread
    if ELASTIC in os.environ and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # another thread began the recording
            signal.signal(signal.SIGINT, interrupt)


def _succeed() -> None:
    """End this process with status 0, without C++ destructors: a group without its peers may abort there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.last_type = sys.last_value = None  # the exit handlers see no failure
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def skip_destructors() -> None:
    """Let this forked process exit without C++ destructors.

    Kineto's destructor would wait forever for a thread that does not exist in the fork.
    `exit` runs handlers last in, first out: streams are flushed, then `_exit(status)` ends it.
    """
    library = ctypes.CDLL(None)
    if all(hasattr(library, name) for name in ("on_exit", "fcloseall", "_exit")):
        library.on_exit(library._exit, None)
        library.on_exit(library.fcloseall, None)
