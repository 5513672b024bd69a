"""Small CUDA C++ kernels, compiled on first use and launched on torch's current stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fathom.gauges.gpu import Workload, gpu
from fathom.gauges.measurements import NotHereError

SOURCES = Path(__file__).parent / "kernels"
WHY_NOT = "its kernels need the Python package cuda-core, which is not installed"


class TorchStream:
    """Torch's current stream, with the interface that CUDA's Python libraries expect."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, gpu().torch.cuda.current_stream().cuda_stream


@dataclass(frozen=True)
class Kernel:
    core: Any
    handle: Any

    def launcher(self, grid: int, block: int, *arguments: Any) -> Workload:
        """Return a function that launches the kernel; arguments are tensors or ctypes numbers."""
        config = self.core.LaunchConfig(grid=grid, block=block)
        given = [a.data_ptr() if hasattr(a, "data_ptr") else a for a in arguments]
        stream, launch, kernel = TorchStream(), self.core.launch, self.handle

        def work(_: tuple[Any, ...] = arguments) -> None:  # keeps the tensors behind the addresses alive
            launch(stream, config, kernel, *given)

        return work


def kernel(source: str, name: str) -> Kernel:
    """Return the kernel `name` from `kernels/SOURCE.cu`. Raises NotHereError if it cannot be compiled."""
    try:
        return Kernel(_core(), _compiled(source).get_kernel(name))
    except NotHereError:
        raise
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0][:120]
        raise NotHereError(f"its kernels did not compile ({type(error).__name__}: {line})") from error


@cache
def _core() -> Any:
    gpu()  # torch creates the shared context
    core = core_of_cuda()
    core.Device(0).set_current()
    return core


def core_of_cuda() -> Any:
    """Return the module `cuda.core`, also under its former name. Raises NotHereError if it is missing."""
    for module in ("cuda.core", "cuda.core.experimental"):
        try:
            core = import_module(module)
        except ImportError:
            continue
        if hasattr(core, "Program") and hasattr(core, "launch"):
            return core
    raise NotHereError(WHY_NOT)


@cache
def _compiled(source: str) -> Any:
    core = _core()
    major, minor = gpu().capability
    options = core.ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    return core.Program((SOURCES / f"{source}.cu").read_text(), "c++", options=options).compile("cubin")


def sink() -> Any:
    """Return a buffer that a kernel might write to, so that the compiler does not remove its reads."""
    return gpu().torch.zeros(1, dtype=gpu().torch.int32, device="cuda")
