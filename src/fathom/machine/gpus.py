"""What the driver says about each GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fathom.machine.nvml import NvmlMissingError, load, reading


def describe(nvml: Any) -> list[dict[str, Any]]:
    """One dict a GPU, in the driver's order; what a GPU does not tell is None."""
    count = reading(nvml.nvmlDeviceGetCount) or 0
    return [_describe(nvml, nvml.nvmlDeviceGetHandleByIndex(i), i) for i in range(count)]


def _describe(nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    def ask(name: str, *more: Any) -> Any:
        return reading(getattr(nvml, f"nvmlDeviceGet{name}", None) or _absent, handle, *more)

    memory = ask("MemoryInfo")
    limits = ask("PowerManagementLimitConstraints") or (None, None)
    return {
        "index": index,
        "name": ask("Name"),
        "uuid": ask("UUID"),
        "compute_capability": _dotted(ask("CudaComputeCapability")),
        "memory_bytes": memory.total if memory else None,
        "multiprocessors": _multiprocessors(ask("Attributes_v2")),
        "sm_clock_max_mhz": ask("MaxClockInfo", nvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": ask("MaxClockInfo", nvml.NVML_CLOCK_MEM),
        "power_limit_w": _watts(ask("EnforcedPowerLimit")),
        "power_limit_min_w": _watts(limits[0]),
        "power_limit_max_w": _watts(limits[1]),
        "pcie_generation": ask("CurrPcieLinkGeneration"),
        "pcie_width": ask("CurrPcieLinkWidth"),
        "pci_bus": _bus(ask("PciInfo")),
        "ecc": _switch(ask("EccMode")),
        "mig": _switch(ask("MigMode")),
        "persistence": _switch(ask("PersistenceMode")),
        "vbios": ask("VbiosVersion"),
    }


def _absent(*_: Any) -> None:
    raise NotImplementedError


def _dotted(pair: Any) -> str | None:
    return f"{pair[0]}.{pair[1]}" if pair else None


def _multiprocessors(attributes: Any) -> int | None:
    return getattr(attributes, "multiprocessorCount", None)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _bus(info: Any) -> str | None:
    bus = getattr(info, "busId", None)
    return bus.decode() if isinstance(bus, bytes) else bus


def _switch(value: Any) -> bool | None:
    current = value[0] if isinstance(value, (list, tuple)) else value
    return None if current is None else bool(current)


def read(open_nvml: Callable[[], Any] = load) -> dict[str, Any]:
    """`{"gpus", "driver", "cuda_driver", "why_no_gpu"}` of this machine; never raises."""
    try:
        nvml = open_nvml()
    except NvmlMissingError as error:
        return {"gpus": [], "driver": None, "cuda_driver": None, "why_no_gpu": str(error)}
    gpus = describe(nvml)
    return {
        "gpus": gpus,
        "driver": reading(nvml.nvmlSystemGetDriverVersion),
        "cuda_driver": _cuda(reading(nvml.nvmlSystemGetCudaDriverVersion_v2)),
        "why_no_gpu": None if gpus else "the driver lists no GPU",
    }


def _cuda(version: int | None) -> str | None:
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"
