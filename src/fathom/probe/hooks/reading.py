"""What the samples of a batch take: user code, decoders of libraries, and the rest, which is reading."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from fathom.probe.hooks.patches import Patches
from fathom.probe.imports import when_imported

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SCHEDULER = "/proc/thread-self/schedstat"  # ns that it ran, ns that it was ready to run, times it ran
ACCOUNT = "/proc/thread-self/io"
ACCOUNTED = "rchar", "read_bytes"  # what read calls gave it, what it had storage fetch: mapped files, too
DECODERS = {
    "PIL.ImageFile": ("ImageFile.load",),
    "cv2": ("imread", "imdecode"),
    "imageio.v3": ("imread",),
    "soundfile": ("read",),
    "torchaudio": ("load",),
    "torchvision.io": ("decode_image", "decode_jpeg", "decode_png", "read_image", "read_video"),
    "zlib": ("decompress",),
}


class Decoding(threading.local):
    """Nanoseconds that this thread spent in decoders, since somebody set it to 0; None: nobody counts."""

    ns: int | None = None
    depth = 0


def used() -> int | None:
    """Nanoseconds that this thread ran in user space or waited for a processor; None where none can tell.

    All of its time is told exactly, that in the kernel, of which reading is most, by the tick of some ms: the
    time in user space as it is told by itself would be 0 for whatever is shorter than a tick.
    """
    who = getattr(resource, "RUSAGE_THREAD", None)
    if who is None:
        return None
    return time.thread_time_ns() - int(1e9 * resource.getrusage(who).ru_stime) + (ready() or 0)


def ready() -> int | None:
    """Nanoseconds that this thread was ready to run and had no processor; None where nobody counts them."""
    try:
        with open(SCHEDULER) as file:
            ran, waited, _ = map(int, file.read().split())
        return waited if ran else None  # a kernel that does not count says 0 for all
    except (OSError, ValueError):  # kernels may be built without it
        return None


def ready_since(before: int | None) -> int | None:
    """Nanoseconds."""
    now = ready()
    return None if before is None or now is None else now - before


def read() -> tuple[int, ...] | None:
    """Bytes that this thread read, by ACCOUNTED, which leave out sockets; None where that cannot be told."""
    try:
        with open(ACCOUNT) as file:
            rows = dict(line.split(": ") for line in file)
        return tuple(int(rows[name]) for name in ACCOUNTED)
    except (OSError, ValueError, KeyError):  # kernels may be built without it, containers may hide it
        return None


def read_since(before: tuple[int, ...] | None) -> int | None:
    """Bytes; what came from storage through a read call counts once."""
    now = read()
    return None if before is None or now is None else max(b - a for a, b in zip(before, now, strict=True))


def watch_decoders(patches: Patches, decoding: Decoding) -> None:
    """Time the decoders of libraries, once the program has imported them."""
    for module, names in DECODERS.items():
        when_imported(module, functools.partial(_watch, patches, decoding, names))


def _watch(patches: Patches, decoding: Decoding, names: tuple[str, ...], module: Any) -> None:
    for path in names:
        *owners, name = path.split(".")
        owner = functools.reduce(lambda at, part: getattr(at, part, None), owners, module)
        if owner is not None:
            patches.wrap(owner, name, functools.partial(_timed, decoding))


def _timed(decoding: Decoding, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def decoder(*args: Any, **kwargs: Any) -> Any:
        if decoding.ns is None or decoding.depth:
            return original(*args, **kwargs)
        start, decoding.depth = time.perf_counter_ns(), 1
        try:
            return original(*args, **kwargs)
        finally:
            decoding.depth = 0
            decoding.ns += time.perf_counter_ns() - start

    return decoder
