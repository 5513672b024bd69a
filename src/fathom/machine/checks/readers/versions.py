"""Whether the installed libraries match each other, the driver and the GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from fathom.machine.checks.gpu import gpus
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.registry import reader
from fathom.machine.disks import mounts
from fathom.machine.files import NotOfferedError, UnreadableError
from fathom.machine.nvml import ask

SHADOWS = ("libcudart.so", "libcublas.so", "libcudnn.so", "libnccl.so", "libcublasLt.so")
OLDEST_NCCL = (
    (10, (2, 25)),
    (9, (2, 17)),
)  # first compute capability → first release that supports its links
CUDA_OF_DRIVER = "nvmlSystemGetCudaDriverVersion_v2"
LOCKSTEP = ("cuda-runtime", "cuda-nvrtc", "cuda-cupti")  # packages versioned with the toolkit


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0])[:3])


def _torch_cuda(host: Host) -> tuple[int, int] | None:
    """Return the CUDA that the installed torch was built for (2.11.0+cu130: 13.0), or None if unknown."""
    build = re.search(r"\+cu(\d+)(\d)\b", host.distributions.get("torch", ""))
    return (int(build.group(1)), int(build.group(2))) if build else None


def _families(distributions: Mapping[str, str]) -> dict[int, list[str]]:
    """Group NVIDIA's packages by CUDA major version; packages that do not name one are skipped."""
    families: dict[int, list[str]] = {}
    for name, version in sorted(distributions.items()):
        suffixed = re.fullmatch(r"nvidia-[a-z0-9-]+-cu([0-9]{1,3})", name)
        own = re.fullmatch(r"nvidia-cuda-(runtime|nvrtc|cupti)", name)
        major = (
            int(suffixed.group(1))
            if suffixed
            else _version(version)[0]
            if own and _version(version)
            else None
        )
        if major is not None:
            families.setdefault(major, []).append(name)
    return families


@reader("libraries.cuda_mixed")
def cuda_mixed(host: Host, check: Check) -> Observation:
    families = _families(host.distributions)
    if not families:
        return unfit("no CUDA libraries are installed as Python packages")
    words = "; ".join(f"CUDA {major}: {', '.join(names[:4])}" for major, names in families.items())
    built = _torch_cuda(host)
    strays = sorted({n for major, names in families.items() if built and major != built[0] for n in names})
    return judged(
        len(families) == 1 and not strays, words, strays=" ".join(strays or families[min(families)])
    )


@reader("libraries.cuda_versions")
def cuda_versions(host: Host, check: Check) -> Observation:
    built = _torch_cuda(host)
    if not built:
        return unfit("torch is not installed, or its version does not name a CUDA version")
    installed = {
        name: _version(version)[:2]
        for name, version in host.distributions.items()
        if re.fullmatch(rf"nvidia-({'|'.join(LOCKSTEP)})(-cu\d+)?", name)
    }
    if not installed:
        return unfit("no CUDA runtime is installed as a Python package")
    strays = {name: version for name, version in installed.items() if version != built}
    words = ", ".join(
        f"{name} {'.'.join(map(str, version))}" for name, version in (strays or installed).items()
    )
    return judged(not strays, f"torch was built for CUDA {built[0]}.{built[1]}; installed: {words}")


@reader("libraries.cudnn_mixed")
def cudnn_mixed(host: Host, check: Check) -> Observation:
    installed = [
        f"{n} {v}" for n, v in host.distributions.items() if re.fullmatch(r"nvidia-cudnn(-cu\d+)?", n)
    ]
    if not installed:
        return unfit("cuDNN is not installed as a Python package")
    return judged(len(installed) == 1, ", ".join(sorted(installed)))


@reader("libraries.shadowed")
def shadowed(host: Host, check: Check) -> Observation:
    if "torch" not in host.distributions:
        return unfit("torch is not installed")
    folders = [f for f in host.environment.get("LD_LIBRARY_PATH", "").split(":") if f.startswith("/")]
    copies = [
        str(PurePosixPath("/", path))
        for folder in folders
        for name in SHADOWS
        for path in host.paths(f"{folder.strip('/')}/{name}*")[:1]
    ]
    return judged(not copies, ", ".join(copies) or "LD_LIBRARY_PATH contains none of torch's CUDA libraries")


@reader("libraries.torch_without_cuda")
def torch_without_cuda(host: Host, check: Check) -> Observation:
    gpus(host)
    version = host.distributions.get("torch")
    if version is None:
        return unfit("torch is not installed")
    return judged("+cpu" not in version, f"torch {version}", **_build(host, check.using["builds"]))


def _build(host: Host, builds: list[str]) -> dict[str, str]:
    """Return the newest published build that the driver's CUDA supports; {} if the driver does not say."""
    try:
        number = ask(host.nvml, CUDA_OF_DRIVER)
    except (NotOfferedError, UnreadableError):
        return {}
    cuda = number // 1000 * 10 + number % 1000 // 10
    fitting = [build for build in builds if int(build.removeprefix("cu")) <= cuda]
    return {"build": fitting[-1]} if fitting else {}


@reader("libraries.nccl_version")
def nccl_version(host: Host, check: Check) -> Observation:
    devices = gpus(host)
    if len(devices) < 2 and not host.paths("sys/class/infiniband/*"):
        return unfit("there is only one GPU and no fabric")
    versions = {n: v for n, v in host.distributions.items() if re.fullmatch(r"nvidia-nccl(-cu\d+)?", n)}
    if not versions:
        return unfit("NCCL is not installed as a Python package")
    newest = max(gpu.capability[0] for gpu in devices)
    needed = next((release for first, release in OLDEST_NCCL if newest >= first), (2, 0))
    words = ", ".join(f"{name} {version}" for name, version in versions.items())
    good = all(_version(version) >= needed for version in versions.values())
    return judged(good, f"{words}; compute capability {newest} needs {needed[0]}.{needed[1]}")


@reader("gpu.driver_version")
def driver_version(host: Host, check: Check) -> Observation:
    gpus(host)
    built = _torch_cuda(host)
    if not built:
        return unfit("torch is not installed, or its version does not name a CUDA version")
    number = ask(host.nvml, CUDA_OF_DRIVER)
    driver = (number // 1000, number % 1000 // 10)
    words = f"the driver supports CUDA {driver[0]}.{driver[1]}, torch was built for {built[0]}.{built[1]}"
    if driver[0] < built[0]:
        return failed(words)
    return passed(words if driver >= built else f"{words}: compatible within CUDA {built[0]}")


@reader("libraries.compiler_cache")
def compiler_cache(host: Host, check: Check) -> Observation:
    """Check that caches of compiled kernels lie on a local disk."""
    if "torch" not in host.distributions:
        return unfit("torch is not installed")
    types = mounted(host)
    places = {n: host.environment[n] for n in check.using["names"] if host.environment.get(n)}
    far = {n: p for n, p in places.items() if kind_at(types, p) in check.using["network"]}
    if far:
        words = ", ".join(f"{n}={p} is on {kind_at(types, p)}" for n, p in far.items())
        return failed(words, names=" ".join(far))
    return passed(", ".join(f"{n}={p}" for n, p in places.items()) or "in the default location")


def mounted(host: Host) -> dict[str, str]:
    """Return the file system type of each mount point. Raises NotOfferedError if the kernel lists none."""
    types = {mount.point: mount.type for mount in mounts(host.text("proc/self/mountinfo"))}
    if not types:
        raise NotOfferedError("the kernel does not list mounts")
    return types


def kind_at(types: Mapping[str, str], place: str) -> str:
    """Return the type of the file system that holds `place`."""
    path = PurePosixPath(place)
    return next((types[str(p)] for p in (path, *path.parents) if str(p) in types), "unknown")
