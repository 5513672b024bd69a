"""Describe each GPU and the links between GPUs, from the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fathom.machine import cuda, links, network, pci
from fathom.machine.architectures import architecture
from fathom.machine.files import ROOT
from fathom.machine.libraries import dotted_cuda
from fathom.machine.model import Chip, Clocks, Devices, Gpu, Identity, MigDevice, Pcie, Power, State
from fathom.machine.nvml import NvmlDevice, NvmlMissingError, load, reading

PATIENCE_S = 30.0
AskCuda = Callable[[], dict[str, dict[str, int]]]


def _devices(nvml: Any) -> list[NvmlDevice]:
    count = reading(nvml.nvmlDeviceGetCount) or 0
    handles = [reading(nvml.nvmlDeviceGetHandleByIndex, i) for i in range(count)]
    # A GPU that fell off the bus keeps its index but has no handle.
    return [NvmlDevice(nvml, handle) for handle in handles]


def _describe_all(devices: list[NvmlDevice], ask_cuda: AskCuda, root: Path) -> list[Gpu]:
    """Describe each GPU in the driver's order; `abstained` has the reasons for values that are None."""
    if not devices:
        return []
    try:
        known, why = ask_cuda(), "the CUDA driver does not list this GPU"
    except cuda.CudaMissingError as error:
        known, why = {}, str(error)
    return [_describe(device, i, known, why, root) for i, device in enumerate(devices)]


def _describe(device: NvmlDevice, index: int, known: dict[str, dict[str, int]], why: str, root: Path) -> Gpu:
    bus = _bus(device.ask("PciInfo"))
    gpu: Gpu = {
        "index": index,
        **_identity(device),
        "pci_bus": bus,
        **_clocks(device),
        **_power(device),
        **_pcie(device, root, bus),
        **_state(device),
    }
    gpu = {**gpu, **_chip(device, gpu, known.get(pci.address(bus) or "", {}))}
    if gpu["l2_bytes"] is None:
        device.refused["L2CacheSize"] = "MIG is on" if gpu["mig"] else why
    gpu["nvlink"] = links.nvlink(device)
    gpu["mig_devices"] = _slices(device) if gpu["mig"] else []
    return {**gpu, "abstained": dict(sorted(device.refused.items()))}


def _identity(device: NvmlDevice) -> Identity:
    memory = device.ask("MemoryInfo")
    version = device.ask("CudaComputeCapability")
    capability = f"{version[0]}.{version[1]}" if version else None
    family = architecture(capability)
    return {
        "name": device.ask("Name"),
        "uuid": device.ask("UUID"),
        "compute_capability": capability,
        "architecture": family.name if family else None,
        "memory_bytes": getattr(memory, "total", None),
    }


def _chip(device: NvmlDevice, gpu: Gpu, known: dict[str, int]) -> Chip:
    """Return multiprocessors, L2 and shared memory from CUDA, unless MIG makes CUDA describe a slice."""
    attributes = {} if gpu["mig"] else known
    return {
        "multiprocessors": attributes.get("multiprocessors")
        or _multiprocessors(device, gpu["compute_capability"]),
        "l2_bytes": attributes.get("l2_bytes"),
        "shared_bytes_per_sm": attributes.get("shared_bytes_per_sm"),
        "memory_bus_bits": device.ask_quietly("MemoryBusWidth") or attributes.get("memory_bus_bits"),
    }


def _multiprocessors(device: NvmlDevice, capability: str | None) -> int | None:
    """Return the multiprocessors, or None, from NVML, which reports only cores except for a MIG slice."""
    cores, family = device.ask("NumGpuCores"), architecture(capability)
    if cores and family:
        return cores // family.cores_per_sm
    return getattr(device.ask_quietly("Attributes_v2"), "multiprocessorCount", None)


def _clocks(device: NvmlDevice) -> Clocks:
    sm, memory = device.nvml.NVML_CLOCK_SM, device.nvml.NVML_CLOCK_MEM
    return {
        "sm_clock_mhz": device.ask("ClockInfo", sm),
        "sm_clock_max_mhz": device.ask("MaxClockInfo", sm),
        "memory_clock_mhz": device.ask("ClockInfo", memory),
        "memory_clock_max_mhz": device.ask("MaxClockInfo", memory),
    }


def _power(device: NvmlDevice) -> Power:
    limits = device.ask("PowerManagementLimitConstraints") or (None, None)
    return {
        "power_limit_w": _watts(device.ask("EnforcedPowerLimit")),
        "power_limit_default_w": _watts(device.ask_quietly("PowerManagementDefaultLimit")),
        "power_limit_min_w": _watts(limits[0]),
        "power_limit_max_w": _watts(limits[1]),
    }


def _pcie(device: NvmlDevice, root: Path, bus: str | None) -> Pcie:
    """Return the current PCIe link (slower if idle), and the fastest that both GPU and slot support."""
    place = pci.folder(root, bus)
    seen = pci.link(place)
    return {
        "pcie_generation": device.ask("CurrPcieLinkGeneration") or seen["generation"],
        "pcie_width": device.ask("CurrPcieLinkWidth") or seen["width"],
        "pcie_generation_max": device.ask("MaxPcieLinkGeneration") or seen["generation_max"],
        "pcie_width_max": device.ask("MaxPcieLinkWidth") or seen["width_max"],
        "numa_node": pci.numa_node(place),
        "near_cpus": pci.near_cpus(place),
    }


def _state(device: NvmlDevice) -> State:
    return {
        "ecc": _switch(device.ask("EccMode")),
        "mig": _switch(device.ask("MigMode")),
        "persistence": _switch(device.ask("PersistenceMode")),
        "vbios": device.ask("VbiosVersion"),
    }


def _slices(device: NvmlDevice) -> list[MigDevice]:
    """Return name, multiprocessors and memory of each MIG device of one GPU."""
    count = device.ask("MaxMigDeviceCount") or 0
    handles = (device.ask_quietly("MigDeviceHandleByIndex", i) for i in range(count))
    return [_slice(NvmlDevice(device.nvml, handle)) for handle in handles if handle is not None]


def _slice(part: NvmlDevice) -> MigDevice:
    attributes = part.ask_quietly("Attributes_v2")
    return {
        "name": part.ask_quietly("Name"),
        "uuid": part.ask_quietly("UUID"),
        "multiprocessors": getattr(attributes, "multiprocessorCount", None),
        "memory_bytes": getattr(part.ask_quietly("MemoryInfo"), "total", None),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _bus(info: Any) -> str | None:
    bus = getattr(info, "busId", None)
    return bus.decode() if isinstance(bus, bytes) else bus


def _switch(value: Any) -> bool | None:
    current = value[0] if isinstance(value, (list, tuple)) else value
    return None if current is None else bool(current)


def read(
    open_nvml: Callable[[], Any] = load,
    ask_cuda: AskCuda = cuda.attributes,
    root: Path = ROOT,
    patience_s: float = PATIENCE_S,
) -> Devices:
    """Return `{"gpus", "links", "driver", "cuda_driver", "why_no_gpu"}`; never raises and never hangs."""
    answers: list[Devices] = []

    def ask() -> None:
        try:
            answers.append(_read(open_nvml, ask_cuda, root))
        except Exception as error:  # drivers and bindings may return anything
            answers.append(_none(f"reading the GPUs failed ({type(error).__name__}: {error})", root))

    asking = threading.Thread(target=ask, name="fathom-nvml", daemon=True)
    asking.start()
    asking.join(patience_s)
    return answers[0] if answers else _none(f"the NVIDIA driver did not answer within {patience_s:g} s", root)


def _read(open_nvml: Callable[[], Any], ask_cuda: AskCuda, root: Path) -> Devices:
    try:
        nvml = open_nvml()
    except NvmlMissingError as error:
        return _none(str(error), root)
    devices = _devices(nvml)
    gpus = _describe_all(devices, ask_cuda, root)
    cuda_version = reading(nvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "gpus": gpus,
        "links": links.topology(devices, gpus, network.rdma(root), root),
        "driver": reading(nvml.nvmlSystemGetDriverVersion),
        "cuda_driver": None if cuda_version is None else dotted_cuda(cuda_version),
        "why_no_gpu": None if gpus else "the driver lists no GPU",
    }


def _none(why: str, root: Path) -> Devices:
    matrix = links.topology([], [], network.rdma(root), root)
    return {"gpus": [], "links": matrix, "driver": None, "cuda_driver": None, "why_no_gpu": why}
