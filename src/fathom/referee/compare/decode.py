"""Decode saved results into numbers in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from fathom.errors import BadInputError
from fathom.referee.protocol import Form, SavedResult


@dataclass(frozen=True)
class Leaf:
    """One saved value: its description, bytes, and numbers if it has any."""

    form: Form
    data: bytes | memoryview

    @property
    def place(self) -> str:
        return str(self.form["place"])

    @property
    def dtype(self) -> str:
        return str(self.form.get("dtype", ""))

    @property
    def numeric(self) -> bool:
        return self.form["kind"] in ("tensor", "array", "number")

    def numbers(self) -> np.ndarray:
        """Return the values in their shape, as float64, complex128 or integers. Raises BadInputError."""
        return decode(self.data, self.dtype).reshape(self.form["shape"])

    @property
    def elements(self) -> int:
        """The number of elements in the shape."""
        return prod(self.form["shape"])

    def part(self, elements: slice) -> np.ndarray:
        """Return a slice of the flattened values, decoded like `numbers`."""
        width = len(self.data) // max(self.elements, 1)
        return decode(self.data[elements.start * width : elements.stop * width], self.dtype)

    def same(self, other: Leaf) -> bool:
        """Return whether both leaves hold the same bytes."""
        return np.array_equal(np.frombuffer(self.data, np.uint8), np.frombuffer(other.data, np.uint8))


@dataclass(frozen=True)
class Saved:
    """The result of one call."""

    leaves: list[Leaf]
    mutated: list[str]
    aliases: list[str]
    inputs: str  # their hash
    fingerprint: str | None = None  # hash of all the above, if requested


def read(answer: SavedResult, path: Path) -> Saved:
    """Read the result that a side saved at `path`."""
    leaves = read_leaves(answer["leaves"], path)
    return Saved(leaves, answer["mutated"], answer["aliases"], answer["inputs"])


def read_leaves(forms: list[Form], path: Path) -> list[Leaf]:
    """Read values at `path`, into memory because the side might change the file."""
    data = memoryview(path.read_bytes())
    return [Leaf(form, data[form["offset"] : form["offset"] + form["bytes"]]) for form in forms]


def decode(data: bytes | memoryview, dtype: str) -> np.ndarray:
    """Decode raw bytes of `dtype`, a name like `bfloat16`, into a row of float64, complex128 or integers.

    Raises BadInputError for an unknown dtype.
    """
    if dtype == "bfloat16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(float)
    if dtype.startswith("float8"):
        return _narrow(data, dtype)
    try:
        values = np.frombuffer(data, np.dtype(dtype))
    except TypeError:
        raise BadInputError(f"Results of type {dtype} cannot be compared; return another type.") from None
    if values.dtype.kind == "f":
        return values.astype(float)
    return values.astype(complex) if values.dtype.kind == "c" else values


def _narrow(data: bytes | memoryview, dtype: str) -> np.ndarray:
    if not data:
        return np.empty(0)
    import torch  # results of these types come from torch

    bits = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return np.asarray(bits.view(getattr(torch, dtype)).double().numpy())
