"""The crafted kernels as functions of tensors, each an attribute here: `fathom prove` takes them so.

    cd faults/kernels
    fathom prove callables.py:strided.flawed callables.py:strided.mended \\
        --inputs callables.py:strided.inputs --reference callables.py:strided.reference
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch import Tensor

from fathom.lab import Draw

# The referee loads this file by its path, in processes that start elsewhere.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from faults.kernels.forms import FLAWS, Flaw
from faults.kernels.run import Kernel


class Crafted:
    """A flaw's two forms, and what the referee asks of a pair."""

    def __init__(self, flaw: Flaw) -> None:
        self._flaw = flaw
        self.flawed, self.mended = Kernel(flaw, "flawed"), Kernel(flaw, "mended")

    def inputs(self, seed: int, device: str | None = None) -> tuple[Tensor, int]:
        """Numbers in [0, 1), and the kernel's n."""
        draw = Draw(seed, device)
        n = draw.size(gpu=self._flaw.n, cpu=self._flaw.small)
        return draw.uniform(self._flaw.inputs(n)), n

    def reference(self, numbers: Tensor, n: int) -> Tensor:
        """The result that both must compute."""
        tensor: Tensor = self._flaw.expected(numbers, n)
        return tensor.int() if self._flaw.dtype == "uint32" else tensor

    def work(self, numbers: Tensor, n: int) -> dict[str, float]:
        """Every number is read once, every result written once."""
        return {"bytes": 4 * (numbers.numel() + self._flaw.outputs(n))}


def __getattr__(name: str) -> Any:
    if name not in FLAWS:
        raise AttributeError(f"there is no crafted kernel {name}")
    return globals().setdefault(name, Crafted(FLAWS[name]))
