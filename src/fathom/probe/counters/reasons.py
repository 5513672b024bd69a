"""Reasons why counters cannot be sampled, each with its remedy in one clause."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

OLDEST = (13, 3)
# Its dependencies would replace the libcupti that torch was built with.
INSTALL = "pip install --no-deps cupti-python pyelftools"
PRIVILEGE = (
    "only administrators may read hardware counters; load the nvidia module with"
    " NVreg_RestrictProfilingToAdminUsers=0, or run as root or with CAP_SYS_ADMIN"
)
CUDA_12 = (
    "the program's torch was built for CUDA {}, but PM sampling from Python needs libcupti 13;"
    " use a build of torch for CUDA 13"
)
OLD_LIBRARY = "the libcupti that the program loaded is too old for PM sampling; upgrade nvidia-cuda-cupti"
REQUALIFY = (
    "the qualified counters cannot be sampled on this GPU;"
    " qualify them again with `fathom machine measure --only counters`"
)
NO_PASSAGE = "the hypervisor does not expose hardware counters; use a fully passed-through GPU"
NO_NVPERF = (
    "libnvperf_host.so and libnvperf_target.so were not found beside libcupti;"
    " add their folder to LD_LIBRARY_PATH"
)
TAKEN = "another profiler holds the GPU's performance monitors; end it and record again"

# Names of CUPTI's results, and words in cupti-python's messages.
_MEANINGS = (
    ("INSUFFICIENT_PRIVILEGES", PRIVILEGE),
    ("insufficient privileges", PRIVILEGE),
    ("MIG_DEVICE_NOT_SUPPORTED", "the GPU is partitioned by MIG; slices have no counters, so use a full GPU"),
    ("VIRTUALIZED_DEVICE", NO_PASSAGE),
    ("CONFIDENTIAL_COMPUTING", "confidential computing is on, which forbids hardware counters"),
    ("WSL_DEVICE", "WSL does not expose hardware counters; record on native Linux"),
    ("HARDWARE_BUSY", TAKEN),
    ("MULTIPLE_SUBSCRIBERS", TAKEN),
    ("already enabled", TAKEN),
    ("PARAMETER_SIZE_NOT_SUFFICIENT", OLD_LIBRARY),
    ("API_NOT_IMPLEMENTED", OLD_LIBRARY),
    ("NOT_COMPATIBLE", OLD_LIBRARY),
    ("FunctionNotFound", OLD_LIBRARY),
    ("nvperf", NO_NVPERF),
    ("NOT_SUPPORTED", "the GPU or its driver does not support PM sampling"),
)  # fmt: skip


def why_not(cuda: str | None, version: str | None) -> str | None:
    """Return the reason why sampling cannot work here, known before it is tried; None if there is none.

    `cuda` is the version that torch was built for, `version` that of cupti-python; None if absent.
    """
    if not cuda:
        return "the program's torch was built without CUDA; install a CUDA build of torch"
    if int(cuda.split(".")[0]) < OLDEST[0]:
        return CUDA_12.format(cuda)
    if version is None:
        return f"cupti-python is not installed where the program runs; {INSTALL}"
    if numbers(version) < OLDEST:
        return f"cupti-python {version} has no PM sampling; {INSTALL}"
    return None


def installed() -> str | None:
    """Return the version of cupti-python in this Python, or None."""
    try:
        return metadata.version("cupti-python")
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (13, 4) of 13.4.0."""
    parts = []
    for part in version.split(".")[:2]:
        if not part.isdigit():
            break
        parts.append(int(part))
    return tuple(parts)


def explain(error: BaseException) -> str:
    """Return one clause that explains a collector's exception and says what to do about it."""
    if isinstance(error, PermissionError):
        return PRIVILEGE
    if isinstance(error, ImportError):
        return f"cupti-python could not be loaded ({error}); {INSTALL}"
    if isinstance(error, ValueError):
        return REQUALIFY
    said = f"{type(error).__name__} {_status(error)} {error}"
    for words, meaning in _MEANINGS:
        if words in said:
            return meaning
    return f"sampling failed ({type(error).__name__}: {str(error)[:200]})"


def _status(error: Any) -> str:
    """Return the name of the result in a `cuptiError`."""
    library: Any = sys.modules.get("cupti.cupti")
    try:
        return str(library.Result(int(error.status)).name)
    except (AttributeError, TypeError, ValueError):
        return ""
