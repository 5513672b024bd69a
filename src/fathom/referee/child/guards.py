"""State that a candidate must not change: clocks, functions of shared libraries, settings.

References to them are taken when this module is imported, before any code of either side runs.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from fathom.referee.child.values import torch

now = time.perf_counter_ns
sleep = time.sleep
processor_ns = time.process_time_ns
unpredictable = random.SystemRandom().random
threads = threading.active_count

TIMERS = ("time.", "torch.cuda.synchronize", "torch.cuda.Event", "torch.cuda.Stream", "torch.cuda._sleep")
_HOMES = ("time", "gc", "threading", "os", "numpy", "numpy.linalg", "random", "torch", "torch.Tensor")
_GPU_HOMES = ("torch.cuda", "torch.cuda.Event", "torch.cuda.Stream", "torch.nn.functional", "torch.linalg")


def functions() -> dict[str, object]:
    """Return the public functions and classes of the watched libraries, by name."""
    result: dict[str, object] = {}
    for home in (*_HOMES, *_GPU_HOMES):
        for name, value in list(vars(_named(home)).items()) if _named(home) else ():
            if callable(value) and (not name.startswith("_") or name in _WATCHED_PRIVATE):
                result[f"{home}.{name}"] = value
    return result


_MAGIC = ("init", "add", "mul", "matmul", "getitem", "torch_function")
_WATCHED_PRIVATE = ("_sleep", *(f"__{name}__" for name in _MAGIC))


def _named(home: str) -> Any:
    parts = home.split(".")
    target: Any = sys.modules.get(parts[0])
    for part in parts[1:]:
        target = getattr(target, part, None)
    return target


def replaced(before: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield (reason, name) for every watched function or class that was replaced."""
    for name, value in before.items():
        home, _, last = name.rpartition(".")
        there = vars(_named(home)).get(last)
        if there is not value and not _wrapped_by_compiler(there, value):
            yield ("patched-timer" if name.startswith(TIMERS) else "global-state"), name


def _wrapped_by_compiler(there: Any, value: Any) -> bool:
    """Return whether torch's compiler wrapped a function in the module `there`, as it does on first use."""
    if getattr(there, "_torchdynamo_orig_callable", None) is value:
        return True
    home = getattr(sys.modules.get("torch._compile"), "__file__", None)
    made_in = getattr(getattr(there, "__code__", None), "co_filename", "")
    return getattr(there, "__wrapped__", None) is value and made_in == home


def settings() -> dict[str, str]:
    """Return the settings that change results or speed of other code, as text by name."""
    environment = {f"environment variable {k}": v for k, v in os.environ.items() if not k.startswith(_OWN)}
    return {name: _read(read) for name, read in _READINGS.items()} | _torch_settings() | environment


_READINGS: dict[str, Callable[[], Any]] = {
    "numpy.errstate": np.geterr,
    "gc.isenabled": gc.isenabled,
    "gc.get_threshold": gc.get_threshold,
    "sys.getswitchinterval": sys.getswitchinterval,
    "sys.gettrace": sys.gettrace,
    "sys.getprofile": sys.getprofile,
    "os.getcwd": os.getcwd,
    "os.sched_getaffinity": lambda: sorted(getattr(os, "sched_getaffinity", lambda _: ())(0)),
    "os.nice": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "threading.excepthook": lambda: threading.excepthook,
}
# Environment variables that libraries set themselves.
_OWN = (
    *("PYTORCH_NVML_BASED_CUDA_CHECK", "CUDA_MODULE_LOADING"),
    *("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "KMP_"),
)
_TORCH_READINGS = (
    *("get_default_dtype", "get_default_device", "get_num_threads", "is_grad_enabled"),
    *("get_float32_matmul_precision", "is_inference_mode_enabled", "is_autocast_enabled"),
    *("are_deterministic_algorithms_enabled", "is_autocast_cache_enabled"),
)
_TORCH_FLAGS = (
    *("backends.cuda.matmul.allow_tf32", "backends.cudnn.allow_tf32", "backends.cudnn.benchmark"),
    *("backends.cudnn.deterministic", "backends.fp32_precision"),
    *("backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "backends.cudnn.enabled"),
    *("backends.cuda.matmul.allow_bf16_reduced_precision_reduction", "backends.mkldnn.enabled"),
)


def _torch_settings() -> dict[str, str]:
    lib = torch()
    if lib is None:
        return {}
    values = {f"torch.{name}": _read(getattr(lib, name, lambda: None)) for name in _TORCH_READINGS}
    for name in _TORCH_FLAGS:
        values[f"torch.{name}"] = _read(partial(attrgetter(name), lib))
    values["torch.backends.cuda.matmul.fp32_precision"] = _read(lambda: _matmul_precision(lib))
    if lib.cuda.is_initialized():
        values["torch.cuda.current_stream"] = _read(lambda: lib.cuda.current_stream().cuda_stream)
    return values


def _matmul_precision(lib: Any) -> str:
    """Return the effective precision. `none` defers to the parent setting, which defaults to float32."""
    own, above = lib.backends.cuda.matmul.fp32_precision, lib.backends.fp32_precision
    return next((name for name in (own, above) if name != "none"), "ieee")


def _read(read: Callable[[], Any]) -> str:
    try:
        return repr(read())
    except Exception as error:  # torch raises when contradictory settings are read
        return type(error).__name__


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names of settings that differ, except settings of newly imported libraries."""
    known = [name for name in before if before[name] != after.get(name)]
    return known + [name for name in after if name not in before and not name.startswith("torch.")]


def seed_everything(seed: int) -> None:
    """Seed all generators of random numbers."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    lib = torch()
    if lib is not None:
        lib.manual_seed(seed)


def random_state() -> list[str]:
    """Return the states of all generators of random numbers, as text."""
    states = [repr(hash(random.getstate())), repr(np.random.get_state()[1].tobytes())]  # type: ignore[index]
    lib = torch()
    return states if lib is None else [*states, repr(lib.get_rng_state().numpy().tobytes())]
