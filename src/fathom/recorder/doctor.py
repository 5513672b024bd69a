"""Check which recording depths work here, and explain why others do not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fathom.machine import counters_of, free_bytes, inventory, known_machine, may_count, why_no_counters
from fathom.machine.model import Machine
from fathom.probe.counters import why_not
from fathom.recorder.counters import QUALIFY
from fathom.recorder.finishing import missing_libraries
from fathom.recorder.launch import INJECT
from fathom.recorder.stacks import rehearse, why_no_stacks
from fathom.units import GIB

OLDEST_PYTHON, OLDEST_TORCH = (3, 10), (2, 4)
ENOUGH_BYTES = 2 * GIB
# Run by the program's Python, so that Fathom itself never imports torch.
QUESTIONS = """
import importlib.metadata, importlib.util, json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable, "torch": None}
if importlib.util.find_spec("torch"):
    import torch
    from torch.profiler import ProfilerActivity, kineto_available, supported_activities
    cuda = torch.cuda.is_available()
    found.update(
        torch=torch.__version__, cuda_built=torch.version.cuda, cuda=cuda, kineto=kineto_available(),
        cupti=ProfilerActivity.CUDA in supported_activities(),
        devices=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
    )
try:
    found["cupti_python"] = importlib.metadata.version("cupti-python")
except importlib.metadata.PackageNotFoundError:
    found["cupti_python"] = None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class DoctorCheck:
    """One check; `fix` says what to do if `ok` is false."""

    what: str
    ok: bool | None  # None: a remark that does not block anything
    found: str  # words: ok (a key of --json)
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and for each depth why it does not work here (empty if it does)."""

    depths: dict[str, str]
    checks: list[DoctorCheck]
    machine: Machine

    def as_dict(self) -> dict[str, object]:
        """Return a JSON-able dict."""
        return asdict(self)


@dataclass(frozen=True)
class Answers:
    """The answers of the program's Python to QUESTIONS; `error` is the reason if there are none."""

    python: str = ""
    executable: str = ""
    torch: str | None = None
    cuda_built: str | None = None  # the version of CUDA
    cuda: bool = False
    kineto: bool = False
    cupti: bool = False
    devices: list[str] = field(default_factory=list)
    cupti_python: str | None = None
    error: str = ""


Ask = Callable[[str], Answers]


def examine_host(
    python: str | None = None,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    ask: Ask | None = None,
    machine: Machine | None = None,
) -> Diagnosis:
    """Check this machine and the program's Python, which is `python` or the first one on PATH."""
    machine = known_machine(inventory) if machine is None else machine
    program = python or shutil.which("python", path=environment.get("PATH")) or sys.executable
    answers = (ask or ask_python)(program)
    torch = [_python(program, answers), _torch(program, answers), _kineto(answers)]
    gpu = [_gpu(machine), _cuda(machine, answers), _cupti(machine, answers)]
    counting = [_permission(machine, root), _sampling(machine, answers), _qualified(machine)]
    around = [_stacks(program), _libraries(), _disk(), _path(environment), _container(machine)]
    depths = _depths(torch, gpu, answers) | {"counters": ""}
    why = why_no_counters(machine, root) or why_not(answers.cuda_built, answers.cupti_python)
    depths["counters"] = depths["timeline"] or why or ""
    return Diagnosis(depths, [*torch, *gpu, *counting, *around], machine)


def _depths(torch: list[DoctorCheck], gpu: list[DoctorCheck], answers: Answers) -> dict[str, str]:
    def reasons(checks: list[DoctorCheck]) -> str:
        return "; ".join(check.found for check in checks if check.ok is False)

    # Surface depth works without torch, but not with one that is too old.
    return {"surface": reasons(torch[: 2 if answers.torch else 1]), "timeline": reasons([*torch, *gpu])}


def ask_python(program: str) -> Answers:
    """Return the answers of the program's Python about torch."""
    try:
        done = subprocess.run([program, "-c", QUESTIONS], capture_output=True, text=True, timeout=120)
        return Answers(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answers(error=f"{program} did not answer ({error})")
    except (ValueError, IndexError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Answers(error=f"{program} failed: {last}")


def _version(words: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", words)[:2])


def _python(program: str, answers: Answers) -> DoctorCheck:
    if answers.error:
        return DoctorCheck("Python", False, answers.error, "give the program's Python with --python")
    result = f"{answers.python} at {answers.executable or program}"
    old = _version(answers.python) < OLDEST_PYTHON
    return DoctorCheck("Python", not old, result, "use Python 3.10 or later for the program")


def _torch(program: str, answers: Answers) -> DoctorCheck:
    version = answers.torch
    if not version:
        fix = "if the program uses torch, give its Python with --python; without, only surface depth works"
        return DoctorCheck("torch", False, f"torch was not found in {answers.executable or program}", fix)
    old = _version(version) < OLDEST_TORCH
    result = f"torch {version}{' is too old' if old else ''}"
    return DoctorCheck("torch", not old, result, "use torch 2.4 or later")


def _kineto(answers: Answers) -> DoctorCheck:
    if not answers.torch:
        return DoctorCheck("Kineto", None, "unknown without torch")
    able = answers.kineto
    result = "available" if able else "torch was built without Kineto"
    return DoctorCheck("Kineto", able, result, "use an official build of torch")


def _gpu(machine: Machine) -> DoctorCheck:
    names = ", ".join(str(gpu["name"]) for gpu in machine["gpus"])
    if names:
        return DoctorCheck("NVML", True, f"{names}, driver {machine['versions'].get('driver')}")
    return DoctorCheck("NVML", None, f"no GPU telemetry: {machine['why_no_gpu']}")


def _cuda(machine: Machine, answers: Answers) -> DoctorCheck:
    if not machine["gpus"] or not answers.torch:
        return DoctorCheck("CUDA", None, "not needed: programs are recorded on the CPU")
    if answers.cuda:
        return DoctorCheck("CUDA", True, f"CUDA {answers.cuda_built}, {len(answers.devices)} visible")
    if not answers.cuda_built:
        return DoctorCheck("CUDA", False, "torch was built for the CPU only", "install a CUDA build of torch")
    fix = "check the driver's version and CUDA_VISIBLE_DEVICES"
    return DoctorCheck("CUDA", False, "torch sees no CUDA device", fix)


def _cupti(machine: Machine, answers: Answers) -> DoctorCheck:
    if not machine["gpus"] or not answers.torch:
        return DoctorCheck("CUPTI", None, "not needed: there is no GPU to trace")
    able = answers.cupti
    result = "available" if able else "torch cannot trace kernels"
    return DoctorCheck("CUPTI", able, result, "install nvidia-cuda-cupti")


def _permission(machine: Machine, root: Path) -> DoctorCheck:
    allowed = may_count(root)
    if not machine["gpus"] or allowed is None:
        return DoctorCheck("counters' permission", None, "no NVIDIA kernel module")
    if allowed:
        return DoctorCheck("counters' permission", True, "hardware counters are readable")
    # Only the depth `counters` needs this right; tracing kernels does not.
    fix = "load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or run as root"
    return DoctorCheck("counters' permission", None, f"only root may read hardware counters; {fix}")


def _sampling(machine: Machine, answers: Answers) -> DoctorCheck:
    if not machine["gpus"] or not answers.cuda_built:
        return DoctorCheck("cupti-python", None, "not needed: there is no GPU to sample")
    version = answers.cupti_python
    why = why_not(answers.cuda_built, version)
    return DoctorCheck("cupti-python", None if why else True, why or f"cupti-python {version}")


def _qualified(machine: Machine) -> DoctorCheck:
    if not machine["gpus"]:
        return DoctorCheck("counters", None, "not needed: there is no GPU to sample")
    known = counters_of(machine)
    if known is None:
        return DoctorCheck("counters", None, QUALIFY)
    groups = known["groups"]
    result = f"{sum(map(len, groups))} available, in {len(groups)} single-pass groups"
    return DoctorCheck("counters", True, result)


def _stacks(program: str) -> DoctorCheck:
    """Check stack sampling by sampling a child process that runs the program's Python."""
    why = why_no_stacks() or rehearse(program)
    result = f"not sampled: {why}" if why else "can be sampled"
    return DoctorCheck("host stacks", None if why else True, result)


def _libraries() -> DoctorCheck:
    missing = missing_libraries()
    result = f"missing here: {', '.join(missing)}" if missing else "all installed"
    fix = "record with --raw, then import where fathom-perf is installed"
    return DoctorCheck("table libraries", not missing, result, fix)


def _disk() -> DoctorCheck:
    free = free_bytes(Path.cwd())
    result = "unknown" if free is None else f"{free / GIB:.1f} GiB free in {Path.cwd()}"
    enough = free is None or free >= ENOUGH_BYTES
    return DoctorCheck("disk", enough, result, "free 2 GiB, or record elsewhere with -o")


def _path(environment: Mapping[str, str]) -> DoctorCheck:
    others = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(INJECT)]
    hooks = [p for p in others if (Path(p) / "sitecustomize.py").is_file()]
    if not hooks:
        return DoctorCheck("PYTHONPATH", True, "no other startup hook")
    return DoctorCheck("PYTHONPATH", True, f"the startup hook in {', '.join(hooks)} runs after Fathom's")


def _container(machine: Machine) -> DoctorCheck:
    host = machine["host"]
    inside = [word for word in (host["container"], host["virtual_machine"] and "a virtual machine") if word]
    return DoctorCheck("container", None, f"inside {' in '.join(inside)}" if inside else "none found")
