"""What a fork needs where Kineto has run before."""

from __future__ import annotations

import ctypes


def skip_destructors() -> None:
    """Let this process, a fork, leave without C++ destructors.

    Kineto's wait at exit for a thread that the fork does not have, so that a program would hang that did not
    hang before. `exit` runs handlers last in first out: streams are flushed, then `_exit(status)` ends it.
    """
    library = ctypes.CDLL(None)
    if all(hasattr(library, name) for name in ("on_exit", "fcloseall", "_exit")):
        library.on_exit(library._exit, None)
        library.on_exit(library.fcloseall, None)
