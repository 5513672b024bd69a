"""Fake hosts for the checks, built from descriptions in tests/data/checks."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import yaml

from fathom.machine.checks import Host, pods
from fathom.machine.files import UnreadableError, parse_list
from tests.support.paths import DATA

HOSTS = DATA / "checks"
GIB = 1 << 30
# NVML's answers for a healthy, busy GPU: names without `nvmlDeviceGet`; `by` holds values by argument.
HEALTHY: dict[str, Any] = {
    "Name": "NVIDIA H200",
    "UUID": "GPU-0000",
    "CudaComputeCapability": [9, 0],
    "PciInfo": {"busId": "00000000:19:00.0"},
    "PersistenceMode": 1,
    "EccMode": [1, 1],
    "TotalEccErrors": {"by": {(1, 0): 0, (1, 1): 0}},
    "RemappedRows": [0, 0, 0, 0],
    "MaxClockInfo": {"by": {(1,): 1980}},
    "ClockInfo": {"by": {(1,): 1980}},
    "ApplicationsClock": {"by": {(1,): 1980}},
    "DefaultApplicationsClock": {"by": {(1,): 1980}},
    "CurrentClocksEventReasons": 0,
    "PowerManagementDefaultLimit": 700_000,
    "EnforcedPowerLimit": 700_000,
    "ViolationStatus": {"by": {(p,): {"violationTime": 0, "referenceTime": 1} for p in (1, 3, 5)}},
    "Temperature": {"by": {(0,): 50}},
    "TemperatureThreshold": {"by": {(1,): 87}},
    "MigMode": [0, 0],
    "ComputeMode": 0,
    "ComputeRunningProcesses": [],
    "MPSComputeRunningProcesses": [],
    "PerformanceState": 0,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "CurrPcieLinkGeneration": 5,
    "MaxPcieLinkGeneration": 5,
    "GpuMaxPcieLinkGeneration": 5,
    "BAR1MemoryInfo": {"bar1Total": 256 * GIB},
    "MemoryInfo": {"total": 141 * GIB},
    "NvLinkState": {"by": {(link,): 1 for link in range(18)}},
    "VbiosVersion": "96.00.A5.00.01",
    "P2PStatus": 0,
}


class FakeNvml:
    """`pynvml` over descriptions; what a description leaves out is not supported there."""

    c_nvmlGpuFabricInfo_t = pynvml.c_nvmlGpuFabricInfo_t  # noqa: N815

    def __init__(self, gpus: Sequence[Mapping[str, Any]], system: Mapping[str, Any]) -> None:
        self.gpus = [{**copy.deepcopy(HEALTHY), **gpu} for gpu in gpus]
        self.system = system

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetP2PStatus(self, item: int, other: int, index: int) -> int:  # noqa: N802
        return self.gpus[item]["P2PStatus"]

    def nvmlDeviceGetGpuFabricInfo(self, handle: int, reference: Any) -> None:  # noqa: N802
        reference._obj.state = self._value(self.gpus[handle], "FabricState", ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDeviceGet"):
            what = name.removeprefix("nvmlDeviceGet")
            return lambda handle, *more: self._value(self.gpus[handle], what, more)
        if name.startswith("nvmlSystem"):
            return lambda *more: self._value(self.system, name, more)
        raise AttributeError(name)

    @staticmethod
    def _value(table: Mapping[str, Any], what: str, arguments: tuple[Any, ...]) -> Any:
        value = table.get(what)
        if isinstance(value, dict) and "by" in value:
            value = value["by"].get(arguments, value["by"].get(arguments[0]))
        if isinstance(value, dict) and "error" in value:
            raise pynvml.NVMLError(value["error"])
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _structure(value)


def _structure(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**value)
    return [_structure(v) for v in value] if isinstance(value, list) else value


def merged(base: Any, change: Any) -> Any:
    """`change` over `base`: mappings member by member, everything else replaced."""
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{name: merged(base.get(name), value) for name, value in change.items()}}
    return change


def cases() -> dict[str, dict[str, Any]]:
    """Every case of tests/data/checks: a mis-set host of a check, and what mends it."""
    result: dict[str, dict[str, Any]] = {}
    for path in sorted(HOSTS.glob("*.yaml")):
        result.update(yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    return result


def fake_host(folder: Path, description: Mapping[str, Any]) -> Host:
    """The described host; values that are null are absent."""
    for path, content in (description.get("files") or {}).items():
        if content is not None:
            _write(folder / path, content)
    for path, target in (description.get("links") or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(target)
    gpus = description.get("gpus")
    return Host(
        root=folder,
        environment={n: str(v) for n, v in (description.get("environment") or {}).items() if v is not None},
        nvml=None if gpus is None else FakeNvml(gpus, description.get("system") or {}),
        run=lambda command: _output(description.get("commands") or {}, command),
        limits={name: float(value) for name, value in (description.get("limits") or {}).items()},
        affinity=parse_list(description.get("affinity", "0-7")),
        distributions={n: v for n, v in (description.get("distributions") or {}).items() if v is not None},
        directory=description.get("directory", "/work"),
        architecture=description.get("architecture", "x86_64"),
        pods=_pods(folder, description.get("manifest")),
    )


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):  # bytes at offsets of a file of a given length
        octets = bytearray(content["length"])
        for offset, value in content["at"].items():
            octets[offset : offset + len(value) // 2] = bytes.fromhex(value)
        path.write_bytes(octets)
    else:
        path.write_text(str(content))


def _output(commands: Mapping[str, str], command: Sequence[str]) -> str:
    if command[0] not in commands:
        raise UnreadableError(f"{command[0]} is not installed")
    return commands[command[0]]


def _pods(folder: Path, manifest: Any) -> Any:
    if manifest is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump_all(manifest if isinstance(manifest, list) else [manifest]))
    return pods([path])
