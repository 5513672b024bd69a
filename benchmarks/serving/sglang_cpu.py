"""Run SGLang's server on a CPU for which it has no kernels, with PyTorch's own operators in their place.

    PYTHON -m benchmarks.serving.sglang_cpu --model-path MODEL --port PORT ...

PYTHON needs sglang (tested: 0.5.23) and its dependencies, without sglang-kernel, cutlass and torchaudio.
torchvision's operators need not load. Scheduler, tokenizer manager, cache and sampling are SGLang's; no
kernel that is missing is called by a small dense model. Its processes are spawned, and import this module
again.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

MISSING = ("sgl_kernel", "cutlass", "torchaudio")
OPTIONS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch"),
    *(
        "--grammar-backend",
        "none",
        "--disable-cuda-graph",
        "--dtype",
        "float32",
        "--mem-fraction-static",
        "0.1",
    ),
)


class Kernel:
    """Stands in for a kernel, or for a namespace of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Say which kernel is missing."""
        raise RuntimeError(f"{self._name} is not here")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Kernel(f"{self._name}.{name}")


class Empty(ModuleType):
    """A module with every kernel that one asks for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Kernel(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are missing, and theirs."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return a specification of an empty package."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in MISSING else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return it."""
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
sys.meta_path.append(Finder())
for operator in ("nms", "qnms"):
    torch.library.define(f"torchvision::{operator}", "(Tensor boxes) -> Tensor")


if __name__ == "__main__":
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args([*OPTIONS, *sys.argv[1:]]))
