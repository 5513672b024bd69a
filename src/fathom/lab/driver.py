"""Launch CUDA C++ kernels on torch's current stream, with the driver calls that this needs."""

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
from fathom.gauges import core_of_cuda
from fathom.lab.technique import INCLUDE


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
    """Link relocatable PTX with CUDA's device runtime; return the cubin. Raises DriverError."""
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


Grid = int | tuple[int, ...]


class _Stream:
    """Torch's current stream, in the protocol of CUDA's Python libraries."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, torch.cuda.current_stream().cuda_stream


class Source:
    """The `.cu` file of the operation whose `__file__` is `file`: of the same name, or of `name`.

    `device_runtime`: link the device runtime, for kernels that launch kernels.
    """

    def __init__(self, file: str, name: str = "", *, device_runtime: bool = False) -> None:
        self.path = Path(file).with_name(f"{name or Path(file).stem}.cu")
        self._device_runtime = device_runtime

    def launch(
        self,
        kernel: str,
        grid: Grid,
        block: Grid,
        *arguments: Any,
        cooperative: bool = False,
        shared: int = 0,
    ) -> None:
        """Launch one kernel. Tensors are passed as addresses, integers as int, other numbers as float.

        Values of ctypes are passed unchanged. `cooperative`: all blocks run at the same time, or none runs.
        `shared`: bytes of shared memory per block beyond those that the kernel declares. Raises DriverError.
        """
        core = core_of_cuda()
        how: dict[str, Any] = {"shmem_size": shared} if shared else {}
        config = (_cooperative if cooperative else core.LaunchConfig)(grid=grid, block=block, **how)
        run = _kernel(self.path, kernel, self._device_runtime, shared)
        core.launch(_Stream(), config, run, *map(_passed, arguments))

    def multiprocessors(self) -> int:
        """Return the number of multiprocessors of the current device."""
        return int(torch.cuda.get_device_properties().multi_processor_count)


def _cooperative(**how: Any) -> Any:
    """Return the configuration of a cooperative launch, in older and newer versions of cuda.core."""
    core = core_of_cuda()
    try:
        return core.LaunchConfig(**how, is_cooperative=True)
    except TypeError:
        return core.LaunchConfig(**how, cooperative_launch=True)


def _passed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if isinstance(value, ctypes._SimpleCData):
        return value
    return ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value)


@cache
def _kernel(path: Path, name: str, device_runtime: bool, shared: int) -> Any:
    kernel = _compiled(path, device_runtime).get_kernel(name)
    if shared:
        allow_shared(kernel._handle, shared)
    return kernel


@cache
def _compiled(path: Path, device_runtime: bool) -> Any:
    core = core_of_cuda()
    torch.cuda.current_stream()  # torch creates the context that everything shares
    core.Device(torch.cuda.current_device()).set_current()
    major, minor = torch.cuda.get_device_capability()
    how: dict[str, Any] = {"relocatable_device_code": True} if device_runtime else {}
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    # With these, a dive can show the source lines where warps wait.
    how |= {"lineinfo": True, "name": str(path)}
    options = core.ProgramOptions(std="c++17", arch=arch, include_path=[str(INCLUDE)], **how)
    program = core.Program(path.read_text(), "c++", options=options)
    if not device_runtime:
        return program.compile("cubin")
    ptx = program.compile("ptx").code
    return core.ObjectCode.from_cubin(link_device_runtime(bytes(ptx), device_runtime_library()))
