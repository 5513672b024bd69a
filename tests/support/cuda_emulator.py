"""CUDA kernels on the processor, of techniques and crafted flaws: the same source, a stand-in for the GPU."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from fathom.lab.technique import INCLUDE
from tests.support.paths import DATA

CUDA = DATA / "cuda"
GXX = shutil.which("g++")
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__\w+__\([^)]*\)\s+)*(\w+)\(([^)]*)\)')


def in_namespace(source: Path) -> str:
    """A source in a namespace, its kernels under their own names: one call of a compiler is quicker."""
    text, stem = source.read_text(), source.stem
    heads = "".join(re.findall(r"^#include.*\n", text, re.M))
    body = KERNEL.sub(
        lambda hit: hit[0].replace(f"{hit[1]}(", f"{stem}__{hit[1]}("),
        re.sub(r"^#include.*\n", "", text, flags=re.M),
    )
    return f"{heads}namespace {stem} {{\n{body}\n}}\n"


def runner(source: Path) -> str:
    """One C function a kernel, which runs a whole grid of it."""
    text = []
    for name, given in KERNEL.findall(source.read_text()):
        names = ", ".join(part.split()[-1].lstrip("*&") for part in given.split(","))
        call = f"{source.stem}::{source.stem}__{name}({names});"
        run = f"emulated::run(shape[0], shape[1], [=] {{ {call} }});"
        text.append(f'extern "C" void run_{source.stem}__{name}(dim3* shape, {given}) {{ {run} }}')
    return "\n".join(text)


def library(sources: list[Path], folder: Path) -> ctypes.CDLL:
    """All kernels, for the processor."""
    file = folder / "emulated.cpp"
    file.write_text("\n".join(f"{in_namespace(source)}\n{runner(source)}" for source in sources))
    options = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-fno-gnu-unique", "-I", CUDA, "-I", INCLUDE]
    heads = ["-include", CUDA / "emulated.h"]
    done = subprocess.run(
        [str(GXX), *options, *heads, file, "-o", folder / "emulated.so"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(folder / "emulated.so"))


def three(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else shape
    return shape + (1,) * (3 - len(shape))


class Emulated:
    """A stand-in for `Source` in a process with a GPU."""

    def __init__(self, library: ctypes.CDLL, stem: str) -> None:
        self._library, self._stem = library, stem
        self.launched: list[str] = []

    def launch(
        self, kernel: str, grid: Any, block: Any, *arguments: Any, cooperative: bool = False, shared: int = 0
    ) -> None:
        assert not shared, "shared memory is what the kernel declares here"
        self.launched.append(kernel)
        assert not cooperative or math.prod(three(grid)) == 1, "blocks run one after the other here"
        shape = (ctypes.c_uint32 * 6)(*three(grid), *three(block))
        getattr(self._library, f"run_{self._stem}__{kernel}")(shape, *map(passed, arguments))

    def multiprocessors(self) -> int:
        return 2


def passed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous()
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value)
