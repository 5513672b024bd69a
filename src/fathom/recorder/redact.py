"""Remove secrets from the command line and the environment before they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from fathom.redaction import HIDDEN, NAME, redact_text

_FLAG = re.compile(rf"-{{1,2}}{NAME}", re.I)

# Variables that help explain a measurement; no others are stored.
ALLOWED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_MODULE_LOADING", "CUDA_CACHE_*", "CUDA_MPS_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_TF32_OVERRIDE"),
    *("NCCL_*", "GLOO_*", "TORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "PYTORCH_*", "KINETO_*", "TRITON_*"),
    *(
        "OMP_*",
        "KMP_*",
        "GOMP_*",
        "MKL_*",
        "OPENBLAS_*",
        "MALLOC_*",
        "GLIBC_TUNABLES",
        "LD_PRELOAD",
        "TOKENIZERS_PARALLELISM",
    ),
    *("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_NNODES", "SLURM_NTASKS"),
    *(
        "SLURM_JOB_ID",
        "TORCHELASTIC_RUN_ID",
        "SLURM_CPUS_PER_TASK",
        "PYTHONHASHSEED",
        "PYTHONOPTIMIZE",
        "PYTHONUNBUFFERED",
    ),
)


def redact_command(command: Iterable[str]) -> list[str]:
    """Hide the secrets of a command: `--token=x`, `--api-key x`, `HF_TOKEN=x`, `hf_…`, `user:x@host`."""
    kept: list[str] = []
    hide_next = False
    for word in command:
        kept.append(HIDDEN if hide_next and not word.startswith("--") else redact_text(word))
        hide_next = _FLAG.fullmatch(word) is not None
    return kept


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables on the allow-list with redacted values."""
    return {
        name: redact_text(value)
        for name, value in sorted(environment.items())
        if any(fnmatchcase(name, pattern) for pattern in ALLOWED) and not re.fullmatch(NAME, name, re.I)
    }
