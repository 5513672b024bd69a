"""Crafted kernels in steps, to be recorded or dived into.

    fathom run -o strided.fathom -- python benchmarks/crafted/run.py strided flawed --steps 200
    fathom dive strided.fathom strided_flawed
    ncu --set full --profile-from-start off … python benchmarks/crafted/run.py all all --steps 3 --launches 1

Compiles the files with cuda.core, checks each kernel's answer against numpy on random numbers, and then
launches it `--launches` times a step. CUDA's profiler is switched on for the last step alone.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from importlib import import_module
from typing import Any

import numpy as np
from forms import FLAWS, FORMS, Flaw

ALL = "all"
CHECKED = {"uncoalesced": 512, "bank_conflicts": 512}  # n for the check; the rest take 2^16 elements


class TorchStream:
    """Torch's current stream, as CUDA's Python libraries ask for one."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.torch.cuda.current_stream().cuda_stream


class Kernel:
    """One form of a flaw, compiled for this GPU."""

    def __init__(self, torch: Any, flaw: Flaw, form: str) -> None:
        self.torch, self.flaw, self.form = torch, flaw, form
        self.core = core()
        torch.zeros(1, device="cuda")  # torch makes the context that everything shares
        self.core.Device(0).set_current()
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.handle = self._compiled()

    def _compiled(self) -> Any:
        major, minor = self.torch.cuda.get_device_capability(0)
        options = self.core.ProgramOptions(
            std="c++17", arch=f"sm_{major}{minor}", lineinfo=True, name=str(self.flaw.source)
        )
        program = self.core.Program(self.flaw.source.read_text(), "c++", options=options)
        return program.compile("cubin").get_kernel(f"{self.flaw.name}_{self.form}")

    def launch(self, from_: Any, to: Any, n: int) -> None:
        """One launch on torch's current stream."""
        grid = self.flaw.grid(self.form, n, self.multiprocessors)
        config = self.core.LaunchConfig(grid=grid, block=self.flaw.block)
        stream = TorchStream(self.torch)
        self.core.launch(stream, config, self.handle, from_.data_ptr(), to.data_ptr(), ctypes.c_int32(n))

    def output(self, n: int) -> Any:
        """Zeros to write to; unsigned counts live in int32."""
        dtype = self.torch.int32 if self.flaw.dtype == "uint32" else self.torch.float32
        return self.torch.zeros(self.flaw.outputs(n), dtype=dtype, device="cuda")

    def check(self, n: int) -> None:
        """Stop unless the kernel agrees with numpy on n."""
        numbers = self.flaw.make(n)
        to = self.output(n)
        self.launch(self.torch.from_numpy(numbers).cuda(), to, n)
        difference = np.abs(to.cpu().numpy() - self.flaw.expected(numbers, n)).max()
        if not difference <= self.flaw.tolerance:
            sys.exit(f"{self.flaw.name}_{self.form} is wrong: it differs from numpy by {difference:g}")


def core() -> Any:
    """cuda.core, under its name of today or yesterday."""
    for name in ("cuda.core", "cuda.core.experimental"):
        try:
            found = import_module(name)
        except ImportError:
            continue
        if hasattr(found, "Program") and hasattr(found, "launch"):
            return found
    sys.exit("the crafted kernels need the Python package cuda-core; install it")


def steps(kernel: Kernel, count: int, launches: int) -> None:
    """Launch the kernel in steps that Fathom sees."""
    import fathom

    n = kernel.flaw.n
    from_ = kernel.torch.from_numpy(kernel.flaw.make(n)).cuda()
    to = kernel.output(n)
    for step in range(count):
        fathom.step()
        if step == count - 1:
            kernel.torch.cuda.cudart().cudaProfilerStart()
        for _ in range(launches):
            kernel.launch(from_, to, n)
        kernel.torch.cuda.synchronize()
    kernel.torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flaw", choices=[*FLAWS, ALL])
    parser.add_argument("form", choices=[*FORMS, ALL])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--launches", type=int, default=20, help="of the kernel, in a step")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("the crafted kernels need a CUDA device, and torch sees none")
    for flaw in FLAWS if options.flaw == ALL else [options.flaw]:
        for form in FORMS if options.form == ALL else [options.form]:
            kernel = Kernel(torch, FLAWS[flaw], form)
            kernel.check(CHECKED.get(flaw, 1 << 16))
            steps(kernel, options.steps, options.launches)


if __name__ == "__main__":
    main()
