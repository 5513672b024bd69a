"""Throughput of one multiprocessor (SM) of each NVIDIA architecture.

`cores_per_sm` is the number of 32-bit additions per clock. `special_per_sm` is the number of reciprocals,
square roots, base-2 logarithms or exponentials per clock. Both are from "Throughput of Native Arithmetic
Instructions" in the CUDA C++ Programming Guide 13.0. Shared memory has 32 banks of 4 bytes ("Compute
Capabilities" in the same guide).
"""

from __future__ import annotations

from typing import NamedTuple

GUIDE = "CUDA C++ Programming Guide 13.0, Throughput of Native Arithmetic Instructions"


class Architecture(NamedTuple):
    """Figures per SM: 32-bit cores, special-function results per clock, shared-memory bytes per clock."""

    name: str
    cores_per_sm: int
    special_per_sm: int | None = 16
    shared_bytes_per_clock: int = 128


_BY_CAPABILITY = {
    "7.0": Architecture("Volta", 64),
    "7.5": Architecture("Turing", 64),
    "8.0": Architecture("Ampere", 64),
    "8.6": Architecture("Ampere", 128),
    "8.7": Architecture("Ampere", 128),
    "8.9": Architecture("Ada", 128),
    "9.0": Architecture("Hopper", 128),
    "10.0": Architecture("Blackwell", 128),
    # Special functions are faster here, but NVIDIA does not publish by how much.
    "10.3": Architecture("Blackwell Ultra", 128, special_per_sm=None),
    "12.0": Architecture("Blackwell", 128),
    "12.1": Architecture("Blackwell", 128),
}


def architecture(capability: str | None) -> Architecture | None:
    """Return the architecture of a compute capability like `9.0`, or None if it is not listed."""
    return _BY_CAPABILITY.get(capability or "")
