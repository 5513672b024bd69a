"""Remove secrets from the command line and the environment before they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

HIDDEN = "<redacted>"

# Only the last word of a name marks a secret, so that --max-tokens and --tokenizer stay readable.
_LAST = r"(?:token|secret|password|passwd|pwd|passphrase|credentials?|auth|authorization|api_?key|key)"
_NAME = rf"(?:[\w.-]*[._-])?{_LAST}"
_FLAG = re.compile(rf"-{{1,2}}{_NAME}", re.I)
_ASSIGNED = re.compile(
    rf"""(?<![\w.])((?:--?)?{_NAME}["']?\s*[=:]\s*)(?:"[^"]*"|'[^']*'|[^\s&,;"']+)""", re.I
)
_CAMEL = re.compile(r"""((?:api|access|secret|private)(?:Key|Token)["']?\s*[=:]\s*)["']?[^\s&,;"']+["']?""")
_BEARER = re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.I)
_IN_URL = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_LOOKS = re.compile(
    r"\b(?:hf_\w{8,}|sk-[\w-]{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|xox[abposr]-[\w-]{8,}"
    r"|nvapi-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]+\.?[\w-]*)"
)

# Variables that help explain a measurement; no others are stored.
ALLOWED = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_MODULE_LOADING", "CUDA_CACHE_*", "CUDA_MPS_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_TF32_OVERRIDE"),
    *("NCCL_*", "GLOO_*", "TORCH_*", "TORCHINDUCTOR_*", "TORCHDYNAMO_*", "PYTORCH_*", "KINETO_*", "TRITON_*"),
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "MALLOC_*", "LD_PRELOAD", "TOKENIZERS_PARALLELISM"),
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


def redact_text(text: str) -> str:
    """Return `text` with everything that looks like a secret replaced by HIDDEN."""
    for pattern in (_BEARER, _ASSIGNED, _CAMEL):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return _LOOKS.sub(HIDDEN, _IN_URL.sub(HIDDEN, text))


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
        if any(fnmatchcase(name, pattern) for pattern in ALLOWED) and not re.fullmatch(_NAME, name, re.I)
    }
