"""The shape of a machine's inventory, so that damaged or hostile files are refused before they are used."""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from fathom.machine.ceilings import from_machine, missing_from
from fathom.machine.store import MachineFileError

MOST_DEVICES = 4096
_LARGEST = 2**63


class CpuShape(msgspec.Struct):
    """The inventory's `cpu`, as far as anything reads it."""

    model: str | None = None
    vendor: str | None = None
    architecture: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    quota_cores: float | None = None
    physical_cores: int | None = None
    numa_nodes: int | None = None
    features: list[str] | None = None
    caches: list[dict[str, Any]] | None = None


class HostShape(msgspec.Struct):
    """The inventory's `host`, as far as anything reads it."""

    hostname: str | None = None
    product: str | None = None
    cpu: CpuShape | None = None
    memory_bytes: int | None = None
    numa: list[dict[str, Any]] | None = None
    disks: list[dict[str, Any]] | None = None
    filesystems: list[dict[str, Any]] | None = None
    network: list[dict[str, Any]] | None = None
    rdma: list[dict[str, Any]] | None = None
    kernel: str | None = None
    os: str | None = None
    container: str | None = None
    virtual_machine: str | None = None
    limits: dict[str, Any] | None = None
    kubernetes: dict[str, Any] | None = None


class GpuShape(msgspec.Struct):
    """One of the inventory's `gpus`, as far as anything reads it."""

    index: int
    name: str | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    architecture: str | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    numa_node: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    shared_bytes_per_sm: int | None = None
    memory_bus_bits: int | None = None
    nvlink: dict[str, Any] | None = None
    mig_devices: list[Any] | None = None


class MachineShape(msgspec.Struct):
    """A machine file, or the `machine.json` of a sounding; further keys are allowed."""

    fingerprint: str | None = None
    host: HostShape | None = None
    gpus: list[GpuShape] | None = None
    versions: dict[str, str | None] | None = None
    links: dict[str, Any] | None = None
    why_no_gpu: str | None = None
    ceilings: list[dict[str, Any]] | None = None
    missing: list[dict[str, Any]] | None = None
    counters: dict[str, Any] | None = None
    measured_ns: int | None = None
    checks: dict[str, dict[str, Any]] | None = None


def require_machine(machine: Any, name: str) -> dict[str, Any]:
    """Return `machine` without sections that are null. Raises MachineFileError unless it has the right shape.

    Errors call it `name`.
    """
    try:
        shape = msgspec.convert(machine, MachineShape)
    except msgspec.ValidationError as error:
        raise MachineFileError(f"{name} is damaged: {error}; record or measure again.") from None
    indices = [gpu.index for gpu in shape.gpus or []]
    if len(indices) > MOST_DEVICES or len(set(indices)) < len(indices) or min(indices, default=0) < 0:
        raise MachineFileError(f"{name} is damaged: its GPUs are not distinct; record or measure again.")
    if not _finite(machine):
        raise MachineFileError(f"{name} is damaged: it has an impossible number; record or measure again.")
    for read in (from_machine, missing_from):
        read({"ceilings": shape.ceilings or [], "missing": shape.missing or []}, name)
    kept = _without_null(machine, "host", "versions", "gpus", "ceilings", "missing")
    return kept | {"host": _without_null(kept["host"], "cpu")} if "host" in kept else kept


def _without_null(section: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the section without the named parts that are null, which are then absent for all readers."""
    return {name: value for name, value in section.items() if value is not None or name not in names}


def _finite(value: Any) -> bool:
    """Return whether all numbers are finite and fit into 64 bits."""
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, int) or abs(value) <= _LARGEST
