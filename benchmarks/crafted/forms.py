"""The ten kernels: how each is launched, on what, and what must come out, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FORMS = ("flawed", "mended")
Array = np.ndarray
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

    @property
    def source(self) -> Path:
        """The CUDA C++ file."""
        return HERE / f"{self.name}.cu"

    def make(self, n: int, seed: int = 0) -> Array:
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


def transposed(x: Array, n: int) -> Array:
    return x.reshape(n, n).T.ravel()


def chains(x: Array, _n: int, count: int = 48, steps: int = 32) -> Array:
    """See spills.cu; each step goes through the chains in order, so later ones see what is new."""
    value = [x + np.float32(0.01 * i) for i in range(count)]
    for _ in range(steps):
        for i in range(count):
            value[i] = np.float32(0.5) * value[i] + value[(i + 1) % count] * np.float32(0.25)
    return np.sum(value, axis=0, dtype=np.float32)


def recurrences(x: Array, _n: int, steps: int = 64) -> Array:
    """See divergence.cu."""
    rules: list[Callable[[Array], Array]] = [
        lambda v: 0.5 * v + 0.25,
        lambda v: 0.25 * v * v + 0.5,
        lambda v: 0.75 - 0.5 * v,
        lambda v: v - 0.125 * v * v + 0.0625,
    ]
    out = x.astype(np.float64)
    for kind, rule in enumerate(rules):
        for _ in range(steps):
            out[kind::4] = rule(out[kind::4])
    return out


def many_chains(x: Array, n: int, count: int = 160, steps: int = 64) -> Array:
    """See registers.cu."""
    start, factor = x[:n].astype(np.float64), 0.5 + x[n] * 0.01
    total = np.zeros(n)
    for i in range(count):
        value = start + 0.01 * i
        for _ in range(steps):
            value = factor * value + 0.25
        total += value
    return total


def smoothed(x: Array, n: int, threads: int = 64, passes: int = 32) -> Array:
    """See shared_memory.cu; n is a multiple of the block."""
    tiles = x.astype(np.float64).reshape(-1, threads)
    for _ in range(passes):
        tiles = 0.25 * np.roll(tiles, 1, axis=1) + 0.5 * tiles + 0.25 * np.roll(tiles, -1, axis=1)
    return tiles.ravel()


def halved(x: Array, _n: int, steps: int = 256) -> Array:
    """See tail_wave.cu: it nears its fixed point."""
    value = x.astype(np.float64)
    for _ in range(steps):
        value = 0.5 * value + 0.25
    return value


def histogram(x: Array, _n: int, bins: int = 256) -> Array:
    return np.bincount((x * np.float32(bins)).astype(np.int64).clip(0, bins - 1), minlength=bins)


def exponentials(x: Array, _n: int, terms: int = 16, repeats: int = 8) -> Array:
    value = x.astype(np.float64)
    for _ in range(repeats):
        value = 0.5 + 0.1 * sum(np.exp(-term * value) for term in range(1, terms + 1))
    return value


MANY = 1 << 24
FLAWS = {
    flaw.name: flaw
    for flaw in (
        Flaw("uncoalesced", 4096, (32, 8, 1), by_tiles, transposed, lambda n: n * n, lambda n: n * n),
        Flaw("strided", MANY, (256, 1, 1), by_blocks(256 * 8), lambda x, n: 3 * x + 1),
        Flaw("bank_conflicts", 4096, (32, 8, 1), by_tiles, transposed, lambda n: n * n, lambda n: n * n),
        Flaw("spills", MANY // 8, (256, 1, 1), by_blocks(256), chains, tolerance=1e-4),
        Flaw("divergence", MANY, (256, 1, 1), by_blocks(256), recurrences, tolerance=1e-4),
        Flaw(
            "registers", MANY // 8, (256, 1, 1), by_blocks(256), many_chains, lambda n: n + 1, tolerance=1e-4
        ),
        Flaw("shared_memory", MANY // 4, (64, 1, 1), by_blocks(64), smoothed, tolerance=1e-4),
        Flaw("tail_wave", MANY, (1024, 1, 1), waves, halved),
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
