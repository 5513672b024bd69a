"""Checkpoints: their size and cost, and the best interval between them by Young and by Daly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fathom.errors import BadInputError

BYTES_PER_PARAMETER = 13.1  # bf16 weights, fp32 master weights and Adam's two states, less what is shared
SOURCE = "NVIDIA DGX Cloud benchmarking: 204 GB for Nemotron-4 15B, 105 GB for Llama 3 8B"
KINDS = ("sync", "async", "memory")
_BARRIER_S = 1.0  # all ranks agree on a step, assumed
_HOST_COPY = 20e9  # B/s from one GPU to its host's memory, pinned, shared by the GPUs of a host


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of `size` bytes: how long it stops the job, and how soon the next one can begin.

    `sync` stops it until all is written; `async` until it is copied to the host; `memory` keeps copies in
    the memory of two hosts, from which all failures recover but those of both. `gather_s` passes before one
    writer has all parts, while the job stops.
    """

    size: float
    kind: str = "async"
    storage: float = 100e9
    gpus: int = 1
    gather_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInputError(
                f"{self.kind!r} is not a kind of checkpoint; choose one of {', '.join(KINDS)}."
            )
        if self.storage <= 0:
            raise BadInputError("The bandwidth of storage must be above 0; give one like '100 GB/s'.")

    @property
    def write_s(self) -> float:
        """Return the time until the checkpoint is safe."""
        return self.copy_s if self.kind == "memory" else self.gather_s + self.size / self.storage

    @property
    def copy_s(self) -> float:
        """Return the time to copy every GPU's part to its host."""
        return _BARRIER_S + self.gather_s + self.size / self.gpus / _HOST_COPY

    @property
    def stop_s(self) -> float:
        """Return how long the job stops."""
        return self.write_s if self.kind == "sync" else self.copy_s

    @property
    def load_s(self) -> float:
        """Return the time to read it after a failure."""
        return self.write_s - self.gather_s if self.kind != "memory" else self.write_s


def young(stop_s: float, mtbf_s: float) -> float:
    """Return Young's interval of work between checkpoints: √(2 δ M)."""
    return math.sqrt(2 * stop_s * mtbf_s)


def daly(stop_s: float, mtbf_s: float) -> float:
    """Return Daly's interval of higher order (2006, equation 37); the time between failures if δ ≥ 2 M."""
    if stop_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stop_s / (2 * mtbf_s)
    return young(stop_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stop_s


def expected_goodput(interval_s: float, stop_s: float, down_s: float, mtbf_s: float) -> float:
    """Return the productive share of the wall time for exponential failures (Daly 2006, equation 20)."""
    cycle = math.expm1((interval_s + stop_s) / mtbf_s)
    return interval_s / (mtbf_s * math.exp(down_s / mtbf_s) * cycle)
