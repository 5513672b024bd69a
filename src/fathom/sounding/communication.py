"""Kernels that move data between ranks: their library and operation, by name (`communication.yaml`)."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from fathom.data import load

OTHER = "other"  # the operation of a kernel whose name does not show it


class Library(msgspec.Struct, frozen=True):
    """One library: a kernel whose name matches `names` is its own; `operations` are tried in order."""

    library: str
    names: str
    operations: dict[str, str]
    other: str = OTHER


@cache
def libraries() -> tuple[Library, ...]:
    """Return the known libraries; the first whose names match is the kernel's."""
    return tuple(msgspec.convert(load(__package__, "communication"), list[Library]))


@cache
def kernel_names() -> str:
    """Return the regular expression of the names of all kernels that communicate."""
    return "(?i)" + "|".join(f"(?:{library.names})" for library in libraries())


@cache
def identify_collective(name: str) -> tuple[str, str]:
    """Return (library, operation) of a kernel that communicates, by its name; (OTHER, OTHER) if unknown."""
    for library in libraries():
        if re.search(library.names, name, re.IGNORECASE):
            matching = (op for op, names in library.operations.items() if re.search(names, name, re.I))
            return library.library, next(matching, library.other)
    return OTHER, OTHER
