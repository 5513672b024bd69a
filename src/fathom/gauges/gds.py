"""Measure reads from a file directly into GPU memory with kvikio, through cuFile (GPUDirect Storage)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from typing import Any

from fathom.gauges.disk import FILE_BYTES, File, random_file
from fathom.gauges.gpu import effort, gpu
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, best
from fathom.gauges.timer import sample, timed
from fathom.machine import Ceiling
from fathom.units import GIB, MIB

SIZES = (16 * MIB, 256 * MIB, GIB)  # bytes per read
BUDGET_S = 4.0
THROUGH_HOST = "cuFile ran in compatibility mode: through host memory and the page cache"


def _measure(job: GaugeJob) -> Ceiling:
    gpu()
    kvikio = import_module("kvikio")
    with random_file(job.data, int(FILE_BYTES * job.pace)) as file:
        flags = (THROUGH_HOST,) if _compatible(kvikio, file) else ()
        chosen = [size for size in SIZES if size <= file.size] or [file.size]
        results = [_at(kvikio, file, size, flags, effort(job, BUDGET_S / len(chosen))) for size in chosen]
    return best("disk.read.gds", results)


def _compatible(kvikio: Any, file: File) -> bool:
    """Return whether kvikio falls back to ordinary reads; its versions report this in different places."""
    with kvikio.CuFile(str(file.path), "r") as handle:
        preferred = getattr(handle, "is_compat_mode_preferred", None)
    if preferred is None:
        preferred = kvikio.defaults.compat_mode()
    return bool(preferred() if callable(preferred) else preferred)


def _at(kvikio: Any, file: File, size: int, flags: tuple[str, ...], pace: Any) -> Measurement:
    here = gpu()
    buffer = here.torch.empty(size, dtype=here.torch.uint8, device="cuda")
    with kvikio.CuFile(str(file.path), "r") as handle:
        places = cycle(range(0, file.size - size + 1, size))
        taken = sample(timed(lambda: handle.read(buffer, size, next(places))), pace)
    return Measurement({"bytes": size}, taken, size, flags=flags)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {"disk.read.gds": _measure}
