"""Launch kernels in CUDA C++ on torch's current stream; each is compiled at its first launch."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fathom.gauges import core_of_cuda
from fathom.lab.driver import allow_shared, device_runtime_library, link_device_runtime
from fathom.lab.technique import INCLUDE

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
