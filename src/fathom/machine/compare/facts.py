"""The typed part of a machine file that a comparison reads, so that damaged or hostile files are refused."""

from __future__ import annotations

import msgspec

from fathom.machine.ceilings import Ceiling
from fathom.machine.model import Machine
from fathom.machine.store import MachineFileError


class CpuFacts(msgspec.Struct):
    """Fields of the inventory's `cpu` that comparisons read."""

    model: str | None = None
    architecture: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    quota_cores: float | None = None
    numa_nodes: int | None = None
    features: list[str] | None = None


class LimitsFacts(msgspec.Struct):
    """Part of the inventory's `limits`."""

    shm_bytes: int | None = None


class DiskFacts(msgspec.Struct):
    """Part of one of the inventory's `disks`."""

    name: str | None = None
    kind: str | None = None


class FilesystemFacts(msgspec.Struct):
    """Part of one of the inventory's `filesystems`."""

    type: str | None = None
    disk: str | None = None


class PortFacts(msgspec.Struct):
    """Part of a port of an RDMA device."""

    rate_gbps: float | None = None
    link_layer: str | None = None


class AdapterFacts(msgspec.Struct):
    """Part of one of the inventory's RDMA devices."""

    ports: list[PortFacts] = []


class HostFacts(msgspec.Struct):
    """Part of the inventory's `host`."""

    hostname: str | None = None
    cpu: CpuFacts = msgspec.field(default_factory=CpuFacts)
    memory_bytes: int | None = None
    kernel: str | None = None
    container: str | None = None
    virtual_machine: str | None = None
    limits: LimitsFacts | None = None
    disks: list[DiskFacts] | None = None
    filesystems: list[FilesystemFacts] | None = None
    rdma: list[AdapterFacts] | None = None


class GpuFacts(msgspec.Struct):
    """Part of one of the inventory's `gpus`."""

    index: int = 0
    name: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    multiprocessors: int | None = None
    l2_bytes: int | None = None


class LinksFacts(msgspec.Struct):
    """The inventory's `links`."""

    names: list[str] = []
    matrix: list[list[str | None]] = []


class Facts(msgspec.Struct):
    """The part of one machine file that a comparison reads."""

    fingerprint: str
    host: HostFacts
    gpus: list[GpuFacts]
    versions: dict[str, str] = {}
    links: LinksFacts | None = None
    ceilings: list[Ceiling] = []
    measured_ns: int | None = None


def facts(machine: Machine, name: str) -> Facts:
    """Parse a machine file, called `name` in errors. Raises MachineFileError."""
    try:
        parsed = msgspec.convert(machine, Facts)
    except msgspec.ValidationError as error:
        raise MachineFileError(
            f"{name} is not a valid machine file ({error}); `fathom machine --json` writes one."
        ) from None
    for ceiling in parsed.ceilings:
        if not (0 < ceiling.low <= ceiling.value <= ceiling.high < float("inf")):
            raise MachineFileError(
                f"{name} is damaged: the values of its ceiling {ceiling.id} are impossible."
            )
    return parsed
