"""Split the time to load a batch into user code, library decoders, and reading (the rest)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fathom.pristine import os, time
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.imports import when_imported
from fathom.probe.threads import Local

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SCHEDULER = "/proc/thread-self/schedstat"  # ns running, ns ready to run, number of runs
ACCOUNT = "/proc/thread-self/io"
ACCOUNTED = b"rchar:", b"read_bytes:"  # bytes that read calls returned; bytes from storage, also by mmap
DECODERS = {
    "PIL.ImageFile": ("ImageFile.load",),
    "cv2": ("imread", "imdecode"),
    "imageio.v3": ("imread",),
    "soundfile": ("read",),
    "torchaudio": ("load",),
    "torchvision.io": ("decode_image", "decode_jpeg", "decode_png", "read_image", "read_video"),
    "zlib": ("decompress",),
}


class Decoding(Local):
    """Counts in `ns` the time that this thread spends in decoders; None while it is not counting."""

    ns: int | None = None
    depth = 0


def used() -> int | None:
    """Return the nanoseconds that this thread ran in user space or waited for a processor; None if unknown.

    Total time is exact; kernel time, mostly reading, has a resolution of a tick of some ms. The kernel's
    figure for user time would be 0 for anything shorter than a tick.
    """
    who = getattr(resource, "RUSAGE_THREAD", None)
    if who is None:
        return None
    return time.thread_time_ns() - int(1e9 * resource.getrusage(who).ru_stime) + (ready() or 0)


def ready() -> int | None:
    """Return the ns that this thread was ready to run but waited for a processor; None if not counted."""
    try:
        ran, waited, _ = map(int, content(SCHEDULER).split())
        return waited if ran else None  # a kernel that does not count reports 0 for everything
    except (OSError, ValueError):  # kernels may be built without it
        return None


def ready_since(before: int | None) -> int | None:
    """Return the increase of `ready` since `before`, in ns; None if either is unknown."""
    now = ready()
    return None if before is None or now is None else now - before


def read() -> tuple[int, ...] | None:
    """Return the bytes read by this thread as in ACCOUNTED, without sockets; None if unknown."""
    try:
        words = content(ACCOUNT).split()
        return tuple(int(words[words.index(name) + 1]) for name in ACCOUNTED)
    except (OSError, ValueError):  # kernels may be built without it, and containers may hide it
        return None


def content(path: str) -> bytes:
    """Return a short file of the kernel, at a fifth of the cost of `open`."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def read_since(before: tuple[int, ...] | None) -> int | None:
    """Return the bytes read since `before`, the larger of both counts so that no byte counts twice."""
    now = read()
    return None if before is None or now is None else max(b - a for a, b in zip(before, now, strict=True))


def watch_decoders(patches: Patches, decoding: Decoding) -> None:
    """Time library decoders once the program has imported them."""
    for module, names in DECODERS.items():
        when_imported(module, functools.partial(_watch, patches, decoding, names))


def _watch(patches: Patches, decoding: Decoding, names: tuple[str, ...], module: Any) -> None:
    for path in names:
        *owners, name = path.split(".")
        owner = functools.reduce(lambda at, part: getattr(at, part, None), owners, module)
        if owner is not None:
            patches.wrap(owner, name, around(functools.partial(_timed, decoding)))


def _timed(decoding: Decoding, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if decoding.ns is None or decoding.depth:
        return original(*args, **kwargs)
    start, decoding.depth = time.perf_counter_ns(), 1
    try:
        return original(*args, **kwargs)
    finally:
        decoding.depth = 0
        decoding.ns += time.perf_counter_ns() - start
