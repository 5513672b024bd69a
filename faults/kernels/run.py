"""Crafted kernels in steps, to be recorded or dived into.

    fathom run -o strided.fathom -- python -m faults.kernels.run strided flawed --steps 200
    fathom dive strided.fathom strided_flawed
    ncu --set full --profile-from-start off … \\
        python -m faults.kernels.run all all --steps 3 --launches 1

Compiles the files with cuda.core, checks each kernel's answer against numpy on random numbers, and then
launches it `--launches` times a step. CUDA's profiler is switched on for the last step alone.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from faults.kernels.forms import FLAWS, FORMS, Flaw

ALL = "all"
CHECKED = {"uncoalesced": 512, "bank_conflicts": 512}  # n for the check; the rest take 2^16 elements


class Kernel:
    """One form of a flaw."""

    def __init__(self, flaw: Flaw, form: str) -> None:
        from fathom.lab import Source

        self.flaw, self.form = flaw, form
        self.source = Source(str(flaw.source))

    def launch(self, from_: Any, to: Any, n: int) -> None:
        """One launch on torch's current stream."""
        grid = self.flaw.grid(self.form, n, self.source.multiprocessors())
        self.source.launch(f"{self.flaw.name}_{self.form}", grid, self.flaw.block, from_, to, n)

    def output(self, n: int, device: str) -> Any:
        """The tensor to write to; counts, which are int32, begin at zero."""
        import torch

        counts = self.flaw.dtype == "uint32"
        make, dtype = (torch.zeros, torch.int32) if counts else (torch.empty, torch.float32)
        return make(self.flaw.outputs(n), dtype=dtype, device=device)

    def __call__(self, from_: Any, n: int) -> Any:
        """The result of one launch."""
        to = self.output(n, from_.device)
        self.launch(from_, to, n)
        return to

    def check(self, n: int, device: str = "cuda") -> None:
        """Stop unless the kernel agrees with numpy on n."""
        import torch

        numbers = self.flaw.make(n)
        result = self(torch.from_numpy(numbers).to(device), n).cpu().numpy()
        difference = np.abs(result - self.flaw.expected(numbers, n)).max()
        if not difference <= self.flaw.tolerance:
            sys.exit(f"{self.flaw.name}_{self.form} is wrong: it differs from numpy by {difference:g}")


def steps(kernel: Kernel, count: int, launches: int, device: str = "cuda") -> None:
    """Launch the kernel in steps that Fathom sees."""
    import torch

    import fathom

    n = kernel.flaw.n
    from_ = torch.from_numpy(kernel.flaw.make(n)).to(device)
    to = kernel.output(n, device)
    for step in range(count):
        fathom.step()
        if step == count - 1:
            torch.cuda.cudart().cudaProfilerStart()
        for _ in range(launches):
            kernel.launch(from_, to, n)
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flaw", choices=[*FLAWS, ALL])
    parser.add_argument("form", choices=[*FORMS, ALL])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--launches", type=int, default=20, help="of the kernel, in a step")
    options = parser.parse_args()
    import torch

    from fathom.gauges.measurements import NotHereError

    if not torch.cuda.is_available():
        sys.exit("the crafted kernels need a CUDA device, and torch sees none")
    try:
        run(options)
    except NotHereError:
        sys.exit("the crafted kernels need the Python package cuda-core; install it")


def run(options: argparse.Namespace) -> None:
    """Check and run the kernels that were asked for."""
    for flaw in FLAWS if options.flaw == ALL else [options.flaw]:
        for form in FORMS if options.form == ALL else [options.form]:
            kernel = Kernel(FLAWS[flaw], form)
            kernel.check(CHECKED.get(flaw, 1 << 16))
            steps(kernel, options.steps, options.launches)


if __name__ == "__main__":
    main()
