"""The calls of CUDA's runtime that CUPTI records, and their names."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

RUNTIME_DOMAIN = 2  # CUPTI_CB_DOMAIN_RUNTIME_API
MOST = 5_000  # of callback ids; CUDA 13.0 has 522
VERSION = re.compile(r"(_pt[ds][sz])?_v\d+$")
# Launches, and calls in which the host may wait. The others are far more frequent: PyTorch asks for the
# current device a dozen times per launch.
CHOSEN = re.compile(
    r"LaunchKernel|LaunchCooperative|GraphLaunch|Memcpy|Memset|Malloc|Free|HostAlloc|HostRegister|HostUnregister"
    r"|Synchronize|EventQuery|StreamQuery|StreamWaitEvent|ModuleLoad|LibraryLoad|LibraryGet|MemPrefetch"
)
# Calls that wait, for the device or a lock, and that no program makes once per launch.
WAITING = re.compile(r"Synchronize|Malloc|Free|HostAlloc|HostRegister|HostUnregister|ModuleLoad|LibraryLoad")


@lru_cache(maxsize=1)
def runtime_calls(library: Any) -> dict[int, str]:
    """Return the names of the runtime's calls by callback id, spelled as in Kineto; empty if unavailable."""
    return dict(_named(library))


def _named(library: Any) -> Iterator[tuple[int, str]]:
    for number in range(1, MOST):
        name = ctypes.c_char_p()
        if library.cuptiGetCallbackName(RUNTIME_DOMAIN, number, ctypes.byref(name)):
            return
        yield number, plain((name.value or b"").decode(errors="replace"))


def plain(name: str) -> str:
    """Return the name without prefix and version: cudaLaunchKernel of `__cudaLaunchKernel_ptsz_v13000`."""
    return VERSION.sub("", name.lstrip("_"))


def waiting(names: dict[int, str]) -> dict[int, str]:
    """Return the calls that wait, of the names by callback id."""
    return {number: name for number, name in names.items() if WAITING.search(name)}


def unwanted(names: Iterable[tuple[int, str]]) -> list[int]:
    """Return the callback ids of calls that are not recorded."""
    return [number for number, name in names if not CHOSEN.search(name)]
