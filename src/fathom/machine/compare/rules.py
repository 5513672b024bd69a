"""The rules of a comparison as data, and the readers they name, which return one value of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Literal

import msgspec

from fathom.data import load
from fathom.machine.architectures import architecture
from fathom.machine.ceilings import find_ceiling
from fathom.machine.compare.contract import Severity
from fathom.machine.compare.facts import Facts
from fathom.machine.datasheet import find as find_sheet

Value = str | float | None
Reader = Callable[[Facts], Value]
READERS: dict[str, Reader] = {}
_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # GB/s per lane, after encoding
_KINDS = (("amx", "AMX"), ("avx512", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON"))


def reader(read: Reader) -> Reader:
    """Register a reader under its name."""
    READERS[read.__name__] = read
    return read


def value(name: str, machine: Facts) -> Value:
    """Return what reader `name` reads; `gpu.X`, `cpu.X`, `host.X` and `version.X` need no code."""
    if name in READERS:
        return READERS[name](machine)
    place, _, field = name.partition(".")
    if place == "version":
        return machine.versions.get(field)
    if place == "gpu":
        return _of_every_gpu(machine, field)
    return getattr(machine.host.cpu if place == "cpu" else machine.host, field)


def _of_every_gpu(machine: Facts, field: str) -> Value:
    """Return the value that all GPUs share, or a list in words if they differ."""
    values = [getattr(gpu, field) for gpu in machine.gpus]
    if not values or None in values:
        return None
    if isinstance(values[0], bool):
        values = ["on" if each else "off" for each in values]
    kinds = list(dict.fromkeys(values))
    return kinds[0] if len(kinds) == 1 else ", ".join(map(str, kinds))


@reader
def gpu_architecture(machine: Facts) -> Value:
    if not machine.gpus:
        return "no GPU"
    capability = _of_every_gpu(machine, "compute_capability")
    family = architecture(capability if isinstance(capability, str) else None)
    return f"{family.name} {capability}" if family else capability


@reader
def gpu_count(machine: Facts) -> Value:
    return len(machine.gpus)


@reader
def pcie(machine: Facts) -> Value:
    """Return the bandwidth of the first GPU's PCIe link in GB/s per direction."""
    gpu = machine.gpus[0]
    generation = gpu.pcie_generation_max or gpu.pcie_generation  # an idle link may have slowed down
    width = gpu.pcie_width_max or gpu.pcie_width
    lane = _LANE_GBPS.get(generation or 0)
    return lane * width * 1e9 if lane and width else None


@reader
def links(machine: Facts) -> Value:
    """Return the kinds of links between the GPUs."""
    count, matrix = len(machine.gpus), machine.links.matrix if machine.links else []
    if len(matrix) < count or any(len(row) < count for row in matrix[:count]):
        return None
    kinds = {matrix[i][j] for i, j in combinations(range(count), 2)}
    return None if None in kinds or not kinds else ", ".join(sorted(str(kind) for kind in kinds))


@reader
def gpu_nodes(machine: Facts) -> Value:
    """Return the NUMA node of each GPU."""
    if machine.host.cpu.numa_nodes == 1:
        return "one node"
    nodes = [gpu.numa_node for gpu in machine.gpus]
    return None if None in nodes else " ".join(map(str, nodes))


@reader
def balance(machine: Facts) -> Value:
    """Return the first GPU's measured ridge point: bf16 matrix rate over HBM read rate, in FLOP/byte."""
    rates = [find_ceiling(machine.ceilings, name, 0) for name in ("matmul.bf16", "hbm.read")]
    return rates[0].value / rates[1].value if rates[0] and rates[1] else None


@reader
def published_balance(machine: Facts) -> Value:
    """Return the ridge point by the datasheet of the first GPU."""
    gpu = machine.gpus[0]
    sheet = find_sheet({"name": gpu.name})
    rates = [sheet.figure(name) if sheet else None for name in ("matmul.bf16", "hbm")]
    return rates[0].value / rates[1].value if rates[0] and rates[1] else None


@reader
def cores(machine: Facts) -> Value:
    """Return the cores that a program may use under both affinity and quota."""
    cpu = machine.host.cpu
    known = [count for count in (cpu.usable_cores or cpu.logical_cores, cpu.quota_cores) if count]
    return float(min(known)) if known else None


@reader
def instructions(machine: Facts) -> Value:
    features = machine.host.cpu.features
    if features is None:
        return None
    return next((name for flag, name in _KINDS if any(f.startswith(flag) for f in features)), "none of note")


@reader
def shm(machine: Facts) -> Value:
    return machine.host.limits.shm_bytes if machine.host.limits else None


@reader
def data_disk(machine: Facts) -> Value:
    """Return the working directory's file system and the kind of its disk."""
    host = machine.host
    if not host.filesystems:
        return None
    place = host.filesystems[0]
    kind = next((disk.kind for disk in host.disks or [] if disk.name == place.disk), None)
    return f"{place.type} on {kind}" if kind else place.type


@reader
def rdma(machine: Facts) -> Value:
    """Describe the RDMA fabric: number and rate of ports."""
    if machine.host.rdma is None:
        return None
    ports = [port for adapter in machine.host.rdma for port in adapter.ports]
    kinds = sorted({f"{port.link_layer or 'unknown'} {port.rate_gbps or 0:g} Gb/s" for port in ports})
    return f"{len(ports)} ports of {', '.join(kinds)}" if ports else "no RDMA device"


@reader
def virtual(machine: Facts) -> Value:
    return "virtual machine" if machine.host.virtual_machine else "bare metal"


@reader
def container(machine: Facts) -> Value:
    return machine.host.container or "no container"


@reader
def cuda(machine: Facts) -> Value:
    """Return the CUDA version that torch was built for, or the toolkit's without torch."""
    return machine.versions.get("cuda") or machine.versions.get("cuda_toolkit")


@reader
def kernel(machine: Facts) -> Value:
    """Return the kernel's major and minor version."""
    release = re.match(r"\d+\.\d+", machine.host.kernel or "")
    return release.group() if release else None


class ComparedProperty(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One property to compare; see the head of `rules.yaml`."""

    id: str
    what: str
    reads: list[str]
    why: str
    spoils: list[str]
    when: Literal["other", "less", "beyond", "version"] = "other"
    severity: Severity = "check again"
    needs: Literal["", "gpus", "several"] = ""
    tolerance: float = 0.0
    numbers: int = 2
    later: Severity = "carries over"
    unit: str = ""
    built_in: bool = False  # a fixed property of the hardware: equal fingerprints settle it

    def judge(self, a: Value, b: Value) -> Severity:
        """Return how badly a change from value `a` to value `b` affects a result."""
        if a == b:
            return "carries over"
        if self.when == "version":
            front_a, front_b = (_numbers(str(v))[: self.numbers] for v in (a, b))
            return self.severity if front_a != front_b else self.later
        if isinstance(a, int | float) and isinstance(b, int | float):
            return self._by_number(a, b)
        return self.severity

    def _by_number(self, a: float, b: float) -> Severity:
        if self.when == "less":
            return self.severity if b < a * (1 - self.tolerance) else "carries over"
        far = self.when == "other" or abs(b - a) > self.tolerance * max(abs(a), abs(b))
        return self.severity if far else "carries over"


class Rules(msgspec.Struct, forbid_unknown_fields=True):
    """Kinds of results by id, those that need a GPU, and the rules."""

    kinds: dict[str, str]
    of_gpu: list[str]
    rules: list[ComparedProperty]


@cache
def rules() -> Rules:
    """Load `rules.yaml`."""
    return msgspec.convert(load(__package__, "rules"), Rules)


def _numbers(version: str) -> list[int]:
    """Parse `2.11.0+cu130` to [2, 11, 0]: the part after the plus names a build."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
