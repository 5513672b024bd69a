"""Hide the lines that Kineto of torch 2.13 writes to the program's stderr when it starts or stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = (b"USDT:", b"ERROR: External init callback must run in same thread")


@contextmanager
def quiet() -> Iterator[None]:
    """Drop Kineto's lines from stderr; output of other threads is passed on afterwards."""
    try:
        captured = os.memfd_create("fathom-stderr", os.MFD_CLOEXEC)
        kept = os.dup(2)
    except (AttributeError, OSError):
        yield
        return
    os.dup2(captured, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        _pass_on(captured)
        os.close(kept)


def _pass_on(captured: int) -> None:
    with os.fdopen(captured, "rb") as file:
        file.seek(0)
        for line in file:
            if not line.startswith(NOISE):
                os.write(2, line)
