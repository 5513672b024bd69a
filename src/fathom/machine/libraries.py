"""Versions of the libraries that affect a program's speed, found without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from fathom.machine.files import ROOT, names, text

_CUDA_MAJORS = ("13", "12", "11")
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/local/lib",
    "usr/local/cuda/lib64",
    "opt/conda/lib",
)


def versions(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the versions of `torch`, `cuda` (torch's build), `triton`, `cuda_toolkit`, `cudnn` and `nccl`.

    Libraries of this Python environment come before those of the system. Unknown versions are left out.
    """
    torch = torch_version()
    versions_by_name = {
        "torch": torch.get("torch"),
        "cuda": torch.get("cuda"),
        "triton": _distribution(["triton", "pytorch-triton", "triton-windows"]),
        "cuda_toolkit": toolkit(root, environment),
        "cudnn": _bundled("cudnn", torch.get("cuda")) or shared_object(root, "libcudnn.so"),
        "nccl": _bundled("nccl", torch.get("cuda")) or shared_object(root, "libnccl.so"),
    }
    return {name: version for name, version in versions_by_name.items() if version}


def torch_version(folder: Path | None = None) -> dict[str, str]:
    """Return the versions `torch` and `cuda` from the text of torch's version.py, without unknown ones."""
    folder = folder or _torch_folder()
    lines = text(folder / "version.py") if folder else ""
    said = dict(re.findall(r"^(__version__|cuda)\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", lines, re.M))
    versions = {"torch": said.get("__version__") or _distribution(["torch"]), "cuda": said.get("cuda")}
    return {name: version for name, version in versions.items() if version}


def _torch_folder() -> Path | None:
    try:
        spec = importlib.util.find_spec("torch")  # locates the package without importing it
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin else None


def _distribution(wanted: Iterable[str]) -> str | None:
    for name in wanted:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _bundled(library: str, cuda: str | None) -> str | None:
    """Return the version of NVIDIA's package of `library` for torch's CUDA version; None if not installed."""
    majors = [cuda.partition(".")[0]] if cuda else []
    return _distribution(f"nvidia-{library}-cu{major}" for major in (*majors, *_CUDA_MAJORS))


def toolkit(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the CUDA toolkit's version from a header in $CUDA_HOME, beside nvcc, or in /usr/local/cuda."""
    nvcc = shutil.which("nvcc", path=environment.get("PATH", os.defpath))
    named = (environment.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    homes = [Path(home) for home in named if home]
    homes += [Path(nvcc).resolve().parent.parent] if nvcc else []
    for home in (*homes, root / "usr/local/cuda"):
        define = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", text(home / "include/cuda.h"))
        if define:
            return dotted_cuda(int(define.group(1)))
    return None


def dotted_cuda(number: int) -> str:
    """Format CUDA's version number: 13000 becomes `13.0`."""
    return f"{number // 1000}.{number % 1000 // 10}"


def shared_object(root: Path, name: str) -> str | None:
    """Return the version in the file name of an installed library, or None: 2.28.3 for libnccl.so.2.28.3."""
    for folder in _LIBRARY_FOLDERS:
        endings = [
            file.removeprefix(f"{name}.") for file in names(root / folder) if file.startswith(f"{name}.")
        ]
        full = [ending for ending in endings if re.fullmatch(r"\d+(\.\d+)+", ending)]
        if full:
            return max(full, key=lambda ending: [int(part) for part in ending.split(".")])
    return None
