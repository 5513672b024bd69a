"""GPU attributes that only the CUDA driver reports: multiprocessors, L2 size, shared memory.

A separate process queries them. `cuInit` in this process would break programs that fork and then use CUDA,
would fix CUDA_VISIBLE_DEVICES, and could hang on a failing GPU. The query uses only the standard library and
creates no CUDA context.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

PATIENCE_S = 20.0
# CUdevice_attribute in cuda.h
ATTRIBUTES = {"multiprocessors": 16, "memory_bus_bits": 37, "l2_bytes": 38, "shared_bytes_per_sm": 81}
_NAMES = ("libcuda.so.1", "libcuda.so")


class CudaMissingError(Exception):
    """The CUDA driver did not answer; the message says why in one clause."""


def attributes(python: str = sys.executable, patience_s: float = PATIENCE_S) -> dict[str, dict[str, int]]:
    """Return attributes of every GPU by bus id, ignoring CUDA_VISIBLE_DEVICES. Raises CudaMissingError."""
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [python, "-I", "-S", __file__],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise CudaMissingError(f"the CUDA driver did not answer within {patience_s:.0f} s") from None
    except (OSError, ValueError):
        raise CudaMissingError("the CUDA driver could not be queried") from None
    if "error" in answer:
        raise CudaMissingError(answer["error"])
    return answer["gpus"]


def ask(library: Any) -> dict[str, dict[str, int]]:
    """Return the attributes of all GPUs by bus id, by libcuda. Raises CudaMissingError if it cannot start."""
    status = library.cuInit(0)
    if status != 0:
        raise CudaMissingError(f"cuInit failed with error {status}")
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        raise CudaMissingError("the CUDA driver lists no GPU")
    return dict(filter(None, (_device(library, index) for index in range(count.value))))


def _device(library: Any, index: int) -> tuple[str, dict[str, int]] | None:
    device, bus = ctypes.c_int(), ctypes.create_string_buffer(32)
    if library.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None
    if library.cuDeviceGetPCIBusId(bus, len(bus), device) != 0:
        return None
    values = ((name, _attribute(library, device, code)) for name, code in ATTRIBUTES.items())
    return bus.value.decode().lower(), {name: value for name, value in values if value is not None}


def _attribute(library: Any, device: ctypes.c_int, code: int) -> int | None:
    value = ctypes.c_int()
    return value.value if library.cuDeviceGetAttribute(ctypes.byref(value), code, device) == 0 else None


def _load() -> Any:
    for name in _NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaMissingError("the CUDA driver's library (libcuda) is not installed")


if __name__ == "__main__":
    try:
        print(json.dumps({"gpus": ask(_load())}))
    except CudaMissingError as error:
        print(json.dumps({"error": str(error)}))
