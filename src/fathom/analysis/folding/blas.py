"""The threads of the library that numpy multiplies matrices with."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import numpy as np

_SUFFIXES = ("64_", "", "_64_")
_PREFIXES = ("scipy_openblas", "openblas")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep OpenBLAS on one thread meanwhile.

    Its others spin while they wait: on matrices as small as those of a fold they cost four times the CPU time
    and gain nothing. Any other library is left as it is.
    """
    ask, tell = _functions()
    before = ask() if ask else 0
    if tell and before > 1:
        tell(1)
    try:
        yield
    finally:
        if tell and before > 1:
            tell(before)


def _functions() -> tuple[ctypes._FuncPointer | None, ctypes._FuncPointer | None]:
    """How to ask for the number of threads and how to set it, looked up in numpy's own linear algebra."""
    try:
        library = ctypes.CDLL(str(np.linalg._umath_linalg.__file__))
    except (AttributeError, OSError):
        return None, None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            ask = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            tell = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if ask and tell:
                return ask, tell
    return None, None
