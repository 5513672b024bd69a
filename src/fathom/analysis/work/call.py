"""One operator call as the profiler recorded it, and its work."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec

from fathom.analysis.work.dtypes import DTYPES, SCALAR_TYPE, SIZE


class UnknownWorkError(Exception):
    """The work of a call cannot be determined from its record; the message is the reason."""


class Work(msgspec.Struct, frozen=True):
    """The work of a call; `None` means unknown, for the reason in `why`."""

    flops: float | None  # algorithmic floating-point operations
    bytes: float | None  # compulsory: inputs read once, outputs written once
    dtype: str | None = None  # of the inputs of the arithmetic
    why: str = ""


class Tensor(msgspec.Struct, frozen=True):
    """A tensor argument; `dtype` is None if it is in a list whose dtype was not recorded."""

    shape: tuple[int, ...]
    dtype: str | None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> float:
        """Bytes per element. Raises UnknownWorkError if the dtype was not recorded."""
        if self.dtype is None:
            raise UnknownWorkError("the profiler does not record the dtype of a list of tensors")
        return SIZE[self.dtype]

    @property
    def bytes(self) -> float:
        """Bytes of all elements."""
        return self.numel * self.size


class Call(msgspec.Struct, frozen=True):
    """An operator's name and arguments. `element` is the dtype of tensor lists, if known from elsewhere."""

    name: str
    shapes: list[Any]
    dtypes: list[str]
    values: list[str] = msgspec.field(default_factory=list)
    element: str | None = None

    def __len__(self) -> int:
        return len(self.shapes)

    def has(self, i: int) -> bool:
        """Return whether argument `i` is a tensor."""
        return i < len(self.dtypes) and self.dtypes[i] in DTYPES

    def tensor(self, i: int) -> Tensor:
        """Return argument `i` as a tensor. Raises UnknownWorkError if it is not a tensor."""
        if not self.has(i):
            raise UnknownWorkError(f"argument {i} of {self.name} was not recorded as a tensor")
        return Tensor(_shape(self.shapes[i]), DTYPES[self.dtypes[i]])

    def tensors(self) -> list[Tensor]:
        """Return all tensor arguments in order, without those in lists."""
        return [self.tensor(i) for i in range(len(self.dtypes)) if self.has(i)]

    def is_list(self, i: int) -> bool:
        """Return whether argument `i` is a list of tensors."""
        return i < len(self.dtypes) and self.dtypes[i] == "TensorList"

    def tensor_list(self, i: int) -> list[Tensor]:
        """Return argument `i` as a list of tensors. Raises UnknownWorkError if it is not such a list."""
        if not self.is_list(i):
            raise UnknownWorkError(f"argument {i} of {self.name} was not recorded as a list of tensors")
        if i == 0 and not self.shapes[i]:  # an operator on an empty list would not run
            raise UnknownWorkError("the profiler does not record the shapes of long lists of tensors")
        return [Tensor(_shape(shape), self.element) for shape in self.shapes[i]]

    def value(self, i: int) -> str:
        """Return argument `i` as text; "" if missing or not plain. Raises UnknownWorkError without values."""
        if not self.values:
            raise UnknownWorkError("the profiler did not record the values of its arguments")
        return self.values[i] if i < len(self.values) else ""

    def ints(self, i: int) -> list[int]:
        """Return argument `i` as a list of integers. Raises UnknownWorkError if it was not recorded."""
        text = self.value(i)
        if not text:
            raise UnknownWorkError(f"argument {i} of {self.name} was not recorded")
        parsed = json.loads(text)
        return [int(x) for x in parsed] if isinstance(parsed, list) else [int(parsed)]

    def flag(self, i: int) -> bool:
        """Return argument `i` as a boolean. Raises UnknownWorkError if it was not recorded."""
        text = self.value(i)
        if text not in ("True", "False"):
            raise UnknownWorkError(f"argument {i} of {self.name} was not recorded")
        return text == "True"

    def scalar_type(self, i: int) -> str | None:
        """Return argument `i` as a dtype; None if it is missing."""
        text = self.value(i)
        return SCALAR_TYPE[int(text)] if text else None


def parse_call(name: str, shapes: str, dtypes: str, values: str | None, element: str | None = None) -> Call:
    """Parse a call as the profiler records it. Raises ValueError or TypeError if it is malformed."""
    dims, types = json.loads(shapes), json.loads(dtypes)
    if not (isinstance(dims, list) and isinstance(types, list) and len(dims) == len(types)):
        raise ValueError("shapes and dtypes do not match")
    concrete = json.loads(values) if values else []
    if not isinstance(concrete, list):
        raise ValueError("the concrete inputs are not a list")
    return Call(name, dims, types, [str(v) for v in concrete], element)


def _shape(dims: Any) -> tuple[int, ...]:
    if not isinstance(dims, list) or not all(type(d) is int and d >= 0 for d in dims):
        raise UnknownWorkError("a shape is malformed")
    return tuple(dims)


Formula = Callable[[Call], Work]


def ops(names: str, formula: Formula, library: str = "aten") -> dict[str, Formula]:
    """Return the formula by each of the ops' `names`, which are separated by spaces."""
    return {f"{library}::{name}": formula for name in names.split()}


def numel(shape: tuple[int, ...] | list[int]) -> int:
    """Number of elements of a shape."""
    return math.prod(shape)


def same(a: int, b: int) -> int:
    """Return a size, after checking that the other one is equal. Raises UnknownWorkError if they differ."""
    if a != b:
        raise UnknownWorkError(f"its shapes are incompatible: {a} and {b}")
    return a
