"""Let forks exit cleanly after Kineto has run."""

from __future__ import annotations

import ctypes


def skip_destructors() -> None:
    """Let this forked process exit without C++ destructors.

    At exit, Kineto's wait for a thread that the fork lacks, which would hang a program that did not
    hang before. `exit` runs handlers last in, first out: streams are flushed, then `_exit(status)` ends it.
    """
    library = ctypes.CDLL(None)
    if all(hasattr(library, name) for name in ("on_exit", "fcloseall", "_exit")):
        library.on_exit(library._exit, None)
        library.on_exit(library.fcloseall, None)
