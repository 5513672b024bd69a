"""Settings of glibc's malloc that are changed while the program runs.

By default, glibc maps blocks above a threshold for themselves, and unmaps them when they are freed. The
threshold is the size of the largest mapped block freed so far, at most 32 MiB. It returns the free end of its
heap, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fathom.pristine import os
from fathom.probe.session import Session

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # parameters of mallopt
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 16 << 20}  # -1: never
PAD, MAPPINGS = 128 << 10, 65536  # glibc's defaults
LEAST, MOST = 64 << 10, 33 << 20  # sizes that glibc never maps, and always
PRECISE = 4 << 10
OWN = ("MALLOC_", "GLIBC_TUNABLES")  # prefixes of variables that set what is changed here


@contextmanager
def freed_memory(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    """Keep memory that the program frees, as MALLOC_MMAP_MAX_=0 and the like do from its start."""
    if value != "keep":
        raise ValueError("'keep' is the only value")
    if any(name.startswith(OWN) for name in os.environ):
        raise ValueError("the environment sets glibc's malloc")
    library = _library()
    threshold = _threshold(library)
    _set(library, KEPT)
    yield
    trim = PAD if threshold <= PAD + PRECISE else 2 * threshold  # as glibc couples them
    _set(library, {MMAP_MAX: MAPPINGS, TRIM_THRESHOLD: trim, TOP_PAD: PAD})
    library.malloc_trim(0)  # blocks that were mapped before would find room in what was kept


def _library() -> Any:
    """Return the C library. Raises AttributeError before glibc 2.33, and where it is another one."""
    import ctypes

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "mapped", *"abcdef")]

    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Info
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    return library


def _set(library: Any, parameters: dict[int, int]) -> None:
    for parameter, value in parameters.items():
        if not library.mallopt(parameter, value):
            raise ValueError(f"glibc refuses {value} for parameter {parameter} of malloc")


def _threshold(library: Any) -> int:
    """Return the size from which blocks are mapped, and stop glibc from adapting it."""
    low, high, mapped = LEAST, MOST, []
    while high - low > PRECISE:
        size, before = (low + high) // 2, library.mallinfo2().mapped
        block = library.malloc(size)
        if library.mallinfo2().mapped > before:
            high = size
            mapped.append(block)
        else:
            low = size
            library.free(block)
    library.mallopt(TOP_PAD, PAD)  # any parameter does: the free of a mapped block no longer changes it
    for block in mapped:
        library.free(block)
    return high
