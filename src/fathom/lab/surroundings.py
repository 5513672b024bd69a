"""Find out whether a technique runs on this machine, or why not."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from fathom.lab.operation import Needs
from fathom.machine import toolkit_program
from fathom.machine.model import Machine

_DISTRIBUTIONS = {
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
    "cuda.tile": "cuda-tile",
    "PIL": "pillow",
    "kvikio": "kvikio-cu13",
    "nvidia.dali": "nvidia-dali-cuda130",
    "nvidia.nvimgcodec": "nvidia-nvimgcodec-cu13",
    "warp": "warp-lang",
}

MOST_JOBS, FREE_CORES = 12, 2
HOST_BYTES, GPU_BYTES = 6 * 2**30, 10 * 2**30  # per proof: three processes, and results in double precision


def _has(package: str) -> bool:
    with suppress(ImportError, ValueError):
        return find_spec(package) is not None
    return False


def _version(tool: str) -> str:
    """Return the version of a program of the CUDA toolkit, as `13.3`; "" if it is not found."""
    place = toolkit_program(tool)
    if place is None:
        return ""
    try:
        output = subprocess.run([place, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    release = re.search(r"release (\d+\.\d+)", output)
    return release[1] if release else ""


@dataclass(frozen=True)
class Here:
    """`capability`: compute capability of torch's GPU, None without; `torch`: its version, "" without;
    `gpus`: the number of GPUs, if there are any.
    """

    capability: float | None
    why_no_gpu: str
    torch: str
    has: Callable[[str], bool] = _has
    version: Callable[[str], str] = _version
    gpus: int = 1

    @property
    def device(self) -> str:
        """The device on which pairs run."""
        return "cpu" if self.capability is None else "cuda"


def here(machine: Machine) -> Here:
    """Return the capabilities of this machine. Imports torch only if the driver reports a GPU."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    gpus = machine.get("gpus") or []
    if not gpus:
        return Here(None, str(machine.get("why_no_gpu") or "there is none"), torch)
    if not _torch_sees_it():
        return Here(None, "torch sees no CUDA device", torch)
    return Here(float(gpus[0].get("compute_capability") or 0), "", torch, gpus=torch_gpus())


def room(machine: Machine, at: Here) -> int:
    """Return how many proofs to run in parallel: one on a CPU, because they would compete for cores."""
    if at.device == "cpu":
        return 1
    cores, host = usable_cores(), machine["host"].get("memory_bytes")
    gpu = machine["gpus"][0].get("memory_bytes")
    by_memory = [size // need for size, need in ((host, HOST_BYTES), (gpu, GPU_BYTES)) if size]
    return max(1, min(MOST_JOBS, cores - FREE_CORES, *by_memory))


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _torch_sees_it() -> bool:
    return torch_gpus() > 0


def torch_gpus() -> int:
    """Return the number of GPUs that torch sees."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def why_not(needs: Needs, at: Here) -> str | None:
    """Return a clause that says why a technique cannot run here; None if it can."""
    if not at.torch:
        return "it needs torch, which is not installed"
    if needs.torch and _numbers(at.torch) < _numbers(needs.torch):
        return f"it needs torch {needs.torch}, here is {at.torch}"
    if (needs.gpu or needs.capability) and at.capability is None:
        return f"it needs a GPU: {at.why_no_gpu}"
    if needs.capability > (at.capability or 0):
        return f"it needs compute capability {needs.capability:.1f}, here is {at.capability:.1f}"
    if needs.ranks > at.gpus and at.capability is not None:
        return f"it needs {needs.ranks} GPUs, here is {at.gpus}"
    missing = [package for package in needs.packages if not at.has(package)]
    if missing:
        return f"it needs {_DISTRIBUTIONS.get(missing[0], missing[0])}, which is not installed"
    reasons = (_too_old(tool, least, at) for tool, least in needs.tools.items())
    return next(filter(None, reasons), None)


def _too_old(tool: str, least: str, at: Here) -> str | None:
    version = at.version(tool)
    if not version:
        return f"it needs {tool} {least} of CUDA's toolkit, which is not installed"
    return f"it needs {tool} {least}, here is {version}" if _numbers(version) < _numbers(least) else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))
