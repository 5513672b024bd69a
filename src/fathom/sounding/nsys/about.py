"""Facts of an export about its machine, its clock and itself."""

from __future__ import annotations

from typing import Any

import polars as pl

from fathom.machine.model import Gpu
from fathom.sounding.events.database import Database
from fathom.sounding.events.trace import listed_gpu

# The GPUs: the table of releases until early 2021 and of later ones, with the columns of an inventory.
GPUS = {
    "TARGET_INFO_CUDA_GPU": {
        "deviceId": "index", "name": "name", "numMultiprocessors": "multiprocessors",
        "computeCapabilityMajor": "major", "computeCapabilityMinor": "minor",
    },
    "TARGET_INFO_GPU": {
        "id": "index", "name": "name", "smCount": "multiprocessors", "totalMemory": "memory_bytes",
        "computeMajor": "major", "computeMinor": "minor",
    },
}  # fmt: skip
_NORMALISED = "EXPORT_PARAM_TIME_NORMALIZE"  # times are those of the wall clock already


class About:
    """Facts of one export. Times of its events are ns after `zero_ns`."""

    def __init__(self, base: Database) -> None:
        self._base = base
        self._export = _properties(base, "META_DATA_EXPORT")
        self._target = _properties(base, "TARGET_INFO_SYSTEM_ENV")
        self.host = self._target.get("Hostname")
        self.gpus = _gpus(base)
        self.zero_ns = self._zero()
        self.physical = _physical(base)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of nsys, the driver and CUDA, as far as the export names them."""
        cuda = self._target.get("CudaDriverVersion", "")
        known = {
            "nsys": self._export.get("EXPORT_PRODUCT_VERSION"),
            "nsys_schema": self._export.get("EXPORT_SCHEMA_VERSION"),
            "driver": self._target.get("NvDriverVersion"),
            "cuda_driver": f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}" if cuda.isdecimal() else None,
        }
        return {name: value for name, value in known.items() if value}

    def _zero(self) -> int:
        """Return the zero of the export's times in ns since the epoch; 0 if it is unknown."""
        if self._export.get(_NORMALISED) == "true":
            return 0
        started = _first(self._base, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "systemClockNs")
        epoch, clock = started if started else (None, None)
        if epoch is None or not 0 <= epoch < 2**61:
            return 0
        begun = _first(self._base, "ANALYSIS_DETAILS", "startTime")
        on_clock = clock is not None and begun is not None and begun[0] == clock  # not since the start
        return epoch - clock if on_clock and clock is not None else epoch


def _properties(base: Database, table: str) -> dict[str, str]:
    rows = base.read(table, {"name": str, "value": str})
    return dict(rows.drop_nulls().iter_rows()) if rows.width == 2 else {}


def _first(base: Database, table: str, *names: str) -> tuple[int | None, ...] | None:
    """Return the columns of the first row, None for those that the table lacks; None if there is no row."""
    rows = base.read(table, dict.fromkeys(names, int))
    return tuple(rows[name][0] if name in rows.columns else None for name in names) if len(rows) else None


def _gpus(base: Database) -> list[Gpu]:
    """Return the GPUs as entries of a machine's inventory."""
    gpus: dict[int, Gpu] = {}
    for table, columns in GPUS.items():
        rows = base.read(table, {name: str if name == "name" else int for name in columns})
        for row in rows.rename(columns, strict=False).iter_rows(named=True):
            if row.get("index") is not None:
                gpus.setdefault(row["index"], _gpu(row))
    return list(gpus.values())


def _gpu(row: dict[str, Any]) -> Gpu:
    counts = (row.get(name) for name in ("major", "minor", "multiprocessors", "memory_bytes"))
    return listed_gpu(row["index"], row.get("name") or "", *counts)


def _physical(base: Database) -> pl.DataFrame:
    """Return the GPU (`device`) behind each process's device number: `pid`, `cuda`, `device`."""
    known = base.read("TARGET_INFO_CUDA_DEVICE", {"pid": int, "cudaId": int, "gpuId": int})
    if known.width < 3:
        return pl.DataFrame(schema={"pid": pl.Int64, "cuda": pl.Int64, "device": pl.Int64})
    once = known.drop_nulls().unique(["pid", "cudaId"], keep="first")
    return once.rename({"cudaId": "cuda", "gpuId": "device"})
