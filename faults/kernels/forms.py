"""The ten kernels: how each is launched, on what, and what must come out.

What must come out is computed in double precision, by numpy of an array and by torch of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FORMS = ("flawed", "mended")
Array = Any  # numpy's, or a tensor
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Flaw:
    """One file of this folder. `grid(form, n, multiprocessors)`; n is the kernel's last argument."""

    name: str
    n: int
    block: Shape
    grid: Callable[[str, int, int], Shape]
    expected: Callable[[Array, int], Array]
    inputs: Callable[[int], int] = lambda n: n  # how many floats the kernel reads
    outputs: Callable[[int], int] = lambda n: n
    dtype: str = "float32"  # of what it writes, which begins as zeros
    tolerance: float = 1e-5
    small: int = 4096  # n for a processor

    @property
    def source(self) -> Path:
        """The CUDA C++ file."""
        return HERE / f"{self.name}.cu"

    def make(self, n: int, seed: int = 0) -> np.ndarray:
        """Random numbers in [0, 1)."""
        return np.random.default_rng(seed).random(self.inputs(n), dtype=np.float32)


def by_blocks(elements: int) -> Callable[[str, int, int], Shape]:
    """A grid of blocks that take `elements` each."""
    return lambda _form, n, _sms: (-(-n // elements), 1, 1)


def by_tiles(_form: str, n: int, _sms: int) -> Shape:
    """A grid of tiles of 32 x 32 of a matrix of n x n."""
    return n // 32, n // 32, 1


def waves(form: str, _n: int, sms: int) -> Shape:
    """One wave of two blocks a multiprocessor; flawed, one block more."""
    return 2 * sms + (form == "flawed"), 1, 1


def library(x: Array) -> Any:
    """Numpy, or torch."""
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def double(x: Array) -> Array:
    """A copy in double precision."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double().clone()


def transposed(x: Array, n: int) -> Array:
    return x.reshape(n, n).T.ravel()


def chains(x: Array, _n: int, count: int = 48, steps: int = 32) -> Array:
    """See spills.cu; each step goes through the chains in order, so later ones see what is new."""
    value = [double(x) + 0.01 * i for i in range(count)]
    for _ in range(steps):
        for i in range(count):
            value[i] = 0.5 * value[i] + value[(i + 1) % count] * 0.25
    return sum(value)


def recurrences(x: Array, _n: int, steps: int = 64) -> Array:
    """See divergence.cu."""
    rules: list[Callable[[Array], Array]] = [
        lambda v: 0.5 * v + 0.25,
        lambda v: 0.25 * v * v + 0.5,
        lambda v: 0.75 - 0.5 * v,
        lambda v: v - 0.125 * v * v + 0.0625,
    ]
    out = double(x)
    for kind, rule in enumerate(rules):
        for _ in range(steps):
            out[kind::4] = rule(out[kind::4])
    return out


def many_chains(x: Array, n: int, count: int = 160, steps: int = 64) -> Array:
    """See registers.cu."""
    start, factor = double(x[:n]), 0.5 + double(x[n:]) * 0.01
    total = 0.0 * start
    for i in range(count):
        value = start + 0.01 * i
        for _ in range(steps):
            value = factor * value + 0.25
        total += value
    return total


def smoothed(x: Array, n: int, threads: int = 64, passes: int = 32) -> Array:
    """See shared_memory.cu; n is a multiple of the block."""
    tiles = double(x).reshape(-1, threads).T
    roll = library(x).roll
    for _ in range(passes):
        tiles = 0.25 * roll(tiles, 1, 0) + 0.5 * tiles + 0.25 * roll(tiles, -1, 0)
    return tiles.T.ravel()


def halved(x: Array, _n: int, steps: int = 256) -> Array:
    """See tail_wave.cu: it nears its fixed point."""
    value = double(x)
    for _ in range(steps):
        value = 0.5 * value + 0.25
    return value


def histogram(x: Array, _n: int, bins: int = 256) -> Array:
    result, places = library(x), double(x) * bins
    places = places.astype(np.int64) if result is np else places.long()
    return result.bincount(places.clip(0, bins - 1), minlength=bins)


def exponentials(x: Array, _n: int, terms: int = 16, repeats: int = 8) -> Array:
    value, exp = double(x), library(x).exp
    for _ in range(repeats):
        value = 0.5 + 0.1 * sum(exp(-term * value) for term in range(1, terms + 1))
    return value


MANY = 1 << 24
FLAWS = {
    flaw.name: flaw
    for flaw in (
        Flaw(
            "uncoalesced", 4096, (32, 8, 1), by_tiles, transposed, lambda n: n * n, lambda n: n * n, small=64
        ),
        Flaw("strided", MANY, (256, 1, 1), by_blocks(256 * 8), lambda x, n: 3 * x + 1),
        Flaw(
            "bank_conflicts",
            4096,
            (32, 8, 1),
            by_tiles,
            transposed,
            lambda n: n * n,
            lambda n: n * n,
            small=64,
        ),
        Flaw("spills", MANY // 8, (256, 1, 1), by_blocks(256), chains, tolerance=1e-4),
        Flaw("divergence", MANY, (256, 1, 1), by_blocks(256), recurrences, tolerance=1e-4),
        Flaw(
            "registers", MANY // 8, (256, 1, 1), by_blocks(256), many_chains, lambda n: n + 1, tolerance=1e-4
        ),
        Flaw("shared_memory", MANY // 4, (64, 1, 1), by_blocks(64), smoothed, tolerance=1e-4),
        Flaw("tail_wave", MANY, (1024, 1, 1), waves, halved, small=5000),
        Flaw(
            "atomics",
            MANY,
            (256, 1, 1),
            lambda _form, _n, sms: (8 * sms, 1, 1),
            histogram,
            outputs=lambda _n: 256,
            dtype="uint32",
            tolerance=0,
        ),
        Flaw("special_functions", MANY, (256, 1, 1), by_blocks(256), exponentials, tolerance=1e-3),
    )
}
