"""This process's description, its first record."""

from __future__ import annotations

import sys

from fathom.pristine import os
from fathom.probe.launchers import task
from fathom.probe.threads import main_thread


def number(name: str) -> int | None:
    """Return the environment variable `name` as an integer; None if it is not one."""
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def rank() -> tuple[int | None, int | None, int | None]:
    """Return (rank, local rank, world size) from torch.distributed, or from the launcher's variables."""
    here = task()
    local = here.local_rank if here else number("LOCAL_RANK")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), local, distributed.get_world_size()
    if here is not None:
        return here.rank, local, here.world
    return number("RANK"), local, number("WORLD_SIZE")


def describe(role: str, start_ns: int) -> dict[str, object]:
    """Return the record of this process: ids, rank, program, versions."""
    own, local, world = rank()
    return {
        "t": "process",
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "rank": own,
        "local_rank": local,
        "world": world,
        "program": _title()
        or (getattr(sys, "argv", None) or [""])[0],  # no arguments: they may contain secrets
        "role": role,
        "host": os.uname().nodename,
        "python": sys.version.split()[0],
        "versions": _versions(),
        "devices": devices(),
        "start_ns": start_ns,
        "main_thread": main_thread().native_id,
    }


def _title() -> str:
    """Return the first word of the title that the process set, as engines and Ray do; empty without one."""
    title = getattr(sys.modules.get("setproctitle"), "getproctitle", str)
    words = title().split()
    return words[0] if words and words[0] not in (sys.executable, *sys.orig_argv[:1]) else ""


def _versions() -> dict[str, str]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "version"):
        return {}
    versions = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
    }
    for name in ("triton", "transformers", "lightning", "accelerate", "deepspeed", "torchvision", "timm"):
        versions[name] = getattr(sys.modules.get(name), "__version__", None)
    return {name: str(version) for name, version in versions.items() if version}


def devices() -> dict[str, str]:
    """Return the names of the CUDA devices by index; empty while CUDA is not in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    return {str(index): cuda.get_device_name(index) for index in range(cuda.device_count())}
