"""What one multiprocessor of each NVIDIA architecture holds."""

from __future__ import annotations

from functools import cache

import msgspec

from fathom.machine.datasheet.files import load

GUIDE = "CUDA C++ Programming Guide 13.0, Throughput of Native Arithmetic Instructions"


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Per multiprocessor: 32-bit cores, special functions a clock, bytes of shared memory a clock."""

    capability: str
    name: str
    cores_per_sm: int
    shared_bytes_per_clock: int
    special_per_sm: int | None = None


def architecture(capability: str | None) -> Architecture | None:
    """The architecture of a compute capability such as `9.0`, or None for one that is not listed."""
    return _all().get(capability or "")


@cache
def _all() -> dict[str, Architecture]:
    return {row.capability: row for row in msgspec.convert(load("architectures"), list[Architecture])}
