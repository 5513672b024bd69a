"""Throughput of one multiprocessor of each NVIDIA architecture.

Cores and special functions are results per clock and multiprocessor of 32-bit additions, and of reciprocals,
square roots, base-2 logarithms and exponentials (CUDA C++ Programming Guide 13.0, "Throughput of Native
Arithmetic Instructions"). Shared memory has 32 banks of 4 bytes ("Compute Capabilities" in the same guide).
"""

from __future__ import annotations

from typing import NamedTuple

GUIDE = "CUDA C++ Programming Guide 13.0, Throughput of Native Arithmetic Instructions"


class Architecture(NamedTuple):
    """Per multiprocessor: 32-bit cores, special-function results per clock, shared-memory bytes per clock."""

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
    # Its special functions are faster; NVIDIA does not publish by how much.
    "10.3": Architecture("Blackwell Ultra", 128, special_per_sm=None),
    "12.0": Architecture("Blackwell", 128),
    "12.1": Architecture("Blackwell", 128),
}


def architecture(capability: str | None) -> Architecture | None:
    """The architecture of a compute capability such as `9.0`, or None for one that is not listed."""
    return _BY_CAPABILITY.get(capability or "")
