"""A lock per GPU, so that proofs take turns. It is named by the GPU's UUID and ends with its process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from fathom.machine import home
from fathom.machine.model import Gpu

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

POLL_S = 0.25
VISIBLE = "CUDA_VISIBLE_DEVICES"
_mine: dict[Path, int] = {}  # locks of this process, with the number of proofs that use each
_guard = threading.Lock()


def first_gpu(gpus: list[Gpu], environment: Mapping[str, str] = os.environ) -> Gpu | None:
    """Return the GPU that a proof uses, which is the first that CUDA lists; None if there is none."""
    named = environment.get(VISIBLE)
    if named is None:
        return gpus[0] if gpus else None
    first = named.split(",")[0].strip()
    if first.isdigit():
        return next((gpu for gpu in gpus if gpu.get("index") == int(first)), None)
    matching = (gpu for gpu in gpus if first and str(gpu.get("uuid") or "").startswith(first))
    slice_of_mig: Gpu = {"uuid": first}
    return next(matching, slice_of_mig if first.startswith("MIG-") else None)


@contextmanager
def one_at_a_time(gpu: Gpu | None, tell: Callable[[str], None], folder: Path | None = None) -> Iterator[None]:
    """A context in which no other process runs proofs on `gpu`. If it has to wait, it tells the user.

    Proofs of one process share the lock. Without a UUID or a lock file, nobody waits.
    """
    uuid = str((gpu or {}).get("uuid") or "")
    if not uuid or fcntl is None:
        yield
        return
    path = (folder or home()) / "locks" / f"{uuid}.lock"
    with _guard:
        first = path not in _mine
        _mine[path] = _mine.get(path, 0) + 1
    file = None
    try:
        file = _taken(path, (gpu or {}).get("index"), tell) if first else None
        yield
    finally:
        with _guard:
            _mine[path] -= 1
            if not _mine[path]:
                del _mine[path]
        if file is not None:
            file.close()  # which releases the lock


def _taken(path: Path, index: int | None, tell: Callable[[str], None]) -> TextIO | None:
    """Lock the file and return it; None if it cannot be locked."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError:
        return None
    announced = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not announced:
                announced = True
                tell(f"waiting for another proof on GPU {'?' if index is None else index} ({_holder(path)})")
            time.sleep(POLL_S)
        except OSError:  # a file system without locks
            file.close()
            return None
        else:
            break
    with suppress(OSError):
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
    return file


def _holder(path: Path) -> str:
    try:
        return f"pid {int(path.read_text())}"
    except (OSError, ValueError):
        return "its pid is not known"
