"""Make calls of the CUDA driver that neither torch nor cuda.core offers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fathom.errors import BadInputError


class DriverError(RuntimeError):
    """The driver refused a call; the message is the driver's name of the error."""


@cache
def driver() -> Any:
    """Return the module `cuda.bindings.driver`, after making torch's context current."""
    torch.cuda.current_stream()
    return import_module("cuda.bindings.driver")


def done(answer: tuple[Any, ...]) -> Any:
    """Return the values in the answer of a driver call, without the status. Raises DriverError."""
    status, *values = answer
    if int(status) != 0:
        raise DriverError(str(getattr(status, "name", status)))
    return values[0] if len(values) == 1 else tuple(values)


def allow_shared(kernel: Any, size: int) -> None:
    """Allow a kernel `size` bytes of dynamic shared memory; the default is 48 KB. Raises DriverError."""
    cu, number = driver(), torch.cuda.current_device()
    limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    done(cu.cuKernelSetAttribute(limit, size, kernel, number))


def device_runtime_library(roots: Iterable[Path] | None = None) -> str:
    """Return the path of CUDA's device runtime, in NVIDIA's wheels or a toolkit. Raises BadInputError."""
    for root in _roots() if roots is None else roots:
        for library in sorted(root.glob("**/libcudadevrt.a")):
            return str(library)
    raise BadInputError(
        "There is no libcudadevrt.a to link with; install nvidia-cuda-runtime, or set CUDA_HOME to a toolkit."
    )


def _roots() -> list[Path]:
    spec = find_spec("nvidia")
    wheels = list(spec.submodule_search_locations or ()) if spec else []
    return [Path(place) for place in (*wheels, os.environ.get("CUDA_HOME", "/usr/local/cuda"))]


def link_device_runtime(ptx: bytes, library: str) -> bytes:
    """Link relocatable PTX with the device runtime, which launches kernels from kernels; return the cubin.

    Raises DriverError.
    """
    cu = driver()
    state = done(cu.cuLinkCreate(0, [], []))
    try:
        kind = cu.CUjitInputType
        done(cu.cuLinkAddData(state, kind.CU_JIT_INPUT_PTX, ptx, len(ptx), b"kernels", 0, [], []))
        done(cu.cuLinkAddFile(state, kind.CU_JIT_INPUT_LIBRARY, library.encode(), 0, [], []))
        address, size = done(cu.cuLinkComplete(state))
        return ctypes.string_at(int(address), size)
    finally:
        cu.cuLinkDestroy(state)
