"""Drivers and hosts that tests make up."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

H200 = {
    "Name": b"NVIDIA H200",
    "MemoryInfo": SimpleNamespace(total=150754820096),
    "CudaComputeCapability": (9, 0),
    "NumGpuCores": 16896,
    "EnforcedPowerLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "PowerManagementLimitConstraints": [200_000, 700_000],
    "CurrPcieLinkGeneration": 5,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkGeneration": 5,
    "MaxPcieLinkWidth": 16,
    "EccMode": [1, 1],
    "MigMode": [0, 0],
    "PersistenceMode": 1,
    "VbiosVersion": "96.00.A5.00.1A",
}


class NotSupportedError(Exception):
    """As NVMLError_NotSupported reads."""

    def __str__(self) -> str:
        return "Not Supported"


class FakeNvml:
    """`pynvml`, of GPUs given as dicts of what each answers to `nvmlDeviceGet…`; the rest is refused.

    An answer may be a function of the further arguments. Handles are ("gpu", index), so that a call with
    anything else fails as it would with the driver.
    """

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_NVLINK_MAX_LINKS = 1, 2, 18

    def __init__(self, *gpus: dict, driver: str = "580.159.04") -> None:
        self.gpus = gpus
        self.driver = driver

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return ("gpu", index)

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self):  # noqa: N802
        return 13000

    def __getattr__(self, name):
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda handle, *more: self._answer(handle, name.removeprefix("nvmlDeviceGet"), more)

    def _answer(self, handle, name, more):
        gpu = handle if isinstance(handle, dict) else self.gpus[handle[1]]
        if name not in gpu:
            raise NotSupportedError
        return gpu[name](*more) if callable(gpu[name]) else gpu[name]


def bus(index: int) -> str:
    """The bus id of a fake GPU."""
    return f"0000{index:04X}:{index + 16:02X}:00.0"


def gpu(index: int, base: dict = H200, **more) -> dict:
    """A GPU with another UUID and place."""
    place = SimpleNamespace(busId=bus(index).encode())
    return {**base, "UUID": f"GPU-{index:04d}", "PciInfo": place, **more}


def meshed(index: int, ends: list[int]) -> dict:
    """NVLink answers of a GPU whose links lead to the GPUs `ends`, one each; -1 is a switch, None is off."""

    def state(link):
        if link >= len(ends):
            raise NotSupportedError
        return 0 if ends[link] is None else 1

    return gpu(
        index,
        NvLinkState=state,
        NvLinkVersion=lambda link: 6,
        NvLinkRemoteDeviceType=lambda link: 2 if ends[link] == -1 else 0,
        NvLinkRemotePciInfo=lambda link: SimpleNamespace(busId=bus(ends[link])),
        TopologyCommonAncestor=lambda other: 50,
    )


def no_cuda() -> dict:
    """A CUDA driver that lists no GPU."""
    return {}


def write(root: Path, files: dict[str, str]) -> Path:
    """A tree of small files below `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def link(root: Path, name: str, target: str) -> None:
    """A symbolic link `name` to `target`, both below `root`."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(root / target, path.parent))


def pci_device(root: Path, place: str, **files: str) -> Path:
    """A PCI device at `place`, such as `pci0000:00/0000:00:01.0/0000:3b:00.0`, with its files."""
    folder = root / "sys/devices" / place
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content + "\n")
    link(root, f"sys/bus/pci/devices/{folder.name}", f"sys/devices/{place}")
    return folder
