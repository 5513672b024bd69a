"""A machine as JSON has it: the keys of `machine.json` and their types.

These are dictionaries, not structs, because a machine file is kept with the keys that newer versions add, and
a machine that only records may lack msgspec. Older and imported files lack keys, so none is required.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Cache(TypedDict, total=False):
    """One of a processor's caches; `shared_by` is the number of logical cores that share it."""

    name: str
    size_bytes: int | None
    shared_by: int | None


class Cpu(TypedDict, total=False):
    """The processor. `features` has only the instruction sets that matter to numerical work."""

    model: str | None
    vendor: str | None
    architecture: str | None
    family: int | None
    model_number: int | None
    stepping: int | None
    sockets: int | None
    physical_cores: int | None
    logical_cores: int | None
    usable_cores: int | None
    quota_cores: float | None
    threads_per_core: int | None
    smt: bool | None
    numa_nodes: int | None
    clock_max_mhz: float | None
    clock_nominal_mhz: float | None
    caches: list[Cache] | None
    features: list[str] | None


class NumaNode(TypedDict, total=False):
    """A NUMA node: its processors as ranges, and its distance to every node."""

    node: int
    cpus: str
    memory_bytes: int | None
    distances: list[int]


class Disk(TypedDict, total=False):
    """A disk; `kind` is NVMe, SSD, HDD or virtual."""

    name: str
    kind: str | None
    model: str | None
    size_bytes: int | None


class Filesystem(TypedDict, total=False):
    """The file system that contains `path`, and its disk."""

    path: str
    mount: str
    type: str
    source: str
    disk: str | None


class Place(TypedDict, total=False):
    """Where a device is attached."""

    pci_bus: str | None
    numa_node: int | None


class Interface(Place, total=False):
    """A network interface."""

    name: str
    state: str | None
    speed_mbps: int | None
    mtu: int | None
    driver: str | None


class Port(TypedDict, total=False):
    """A port of an RDMA device."""

    port: str
    state: str | None
    rate_gbps: float | None
    link_layer: str | None


class Adapter(Place, total=False):
    """An RDMA device."""

    name: str
    driver: str | None
    firmware: str | None
    interfaces: list[str]
    ports: list[Port]


class GroupLimits(TypedDict, total=False):
    """Limits of the control group and its ancestors; `cpus` are ranges."""

    version: int | None
    cores: float | None
    memory_bytes: int | None
    pids: int | None
    cpus: str | None


class HostLimits(GroupLimits, total=False):
    """Limits of the control group, and the size of /dev/shm."""

    shm_bytes: int | None


class Kubernetes(TypedDict, total=False):
    """The pod that this process runs in."""

    pod: str | None
    namespace: str | None
    node: str | None


class Host(TypedDict, total=False):
    """Everything but the GPUs."""

    hostname: str | None
    product: str | None
    cpu: Cpu
    memory_bytes: int | None
    numa: list[NumaNode] | None
    disks: list[Disk] | None
    filesystems: list[Filesystem] | None
    network: list[Interface] | None
    rdma: list[Adapter] | None
    kernel: str | None
    os: str | None
    container: str | None
    virtual_machine: str | None
    limits: HostLimits | None
    kubernetes: Kubernetes | None


class NvLink(TypedDict, total=False):
    """Numbers of a GPU's NVLinks: active, off, to a switch, and to each GPU by bus id."""

    links: int
    off: int
    version: str | None
    to_switch: int
    peers: dict[str, int]


class MigDevice(TypedDict, total=False):
    """A part of a GPU that MIG divided."""

    name: str | None
    uuid: str | None
    multiprocessors: int | None
    memory_bytes: int | None


class Identity(TypedDict, total=False):
    """A GPU's name and generation."""

    name: str | None
    uuid: str | None
    compute_capability: str | None
    architecture: str | None
    memory_bytes: int | None


class Clocks(TypedDict, total=False):
    """A GPU's clocks."""

    sm_clock_mhz: float | None
    sm_clock_max_mhz: float | None
    memory_clock_mhz: float | None
    memory_clock_max_mhz: float | None


class Power(TypedDict, total=False):
    """A GPU's power limits."""

    power_limit_w: float | None
    power_limit_default_w: float | None
    power_limit_min_w: float | None
    power_limit_max_w: float | None


class Pcie(TypedDict, total=False):
    """A GPU's PCIe link, which is slower if idle; the fastest that GPU and slot support; and its place."""

    pcie_generation: int | None
    pcie_width: int | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    numa_node: int | None
    near_cpus: str | None


class State(TypedDict, total=False):
    """How a GPU is set up."""

    ecc: bool | None
    mig: bool | None
    persistence: bool | None
    vbios: str | None


class Chip(TypedDict, total=False):
    """The resources of a GPU's chip."""

    multiprocessors: int | None
    l2_bytes: int | None
    shared_bytes_per_sm: int | None
    memory_bus_bits: int | None


class Gpu(Identity, Clocks, Power, Pcie, State, Chip, total=False):
    """A GPU; `abstained` has the reasons for values that are None."""

    index: int
    pci_bus: str | None
    nvlink: NvLink | None
    mig_devices: list[MigDevice] | None
    abstained: dict[str, str]


class Links(TypedDict, total=False):
    """The links between GPUs and RDMA devices as in `nvidia-smi topo -m`; a cell is None if unknown."""

    names: list[str]
    matrix: list[list[str | None]]


class Devices(TypedDict, total=False):
    """The GPUs that the driver reports; `why_no_gpu` is the reason if there are none."""

    gpus: list[Gpu]
    links: Links
    driver: str | None
    cuda_driver: str | None
    why_no_gpu: str | None


class Published(TypedDict):
    """A datasheet's figure for a ceiling; `fraction` is the share of it that was measured."""

    value: float
    unit: str
    source: str
    fraction: float


# The size or shape that was measured, with the result. Each group of gauges adds settings that nothing reads.
Setting = TypedDict(
    "Setting",
    {
        "value": float,
        "seconds": float,
        "bytes": int,
        "shape": list[int],
        "threads": int,
        "from": int,  # GPUs
        "to": int,
        "both_ways": bool,
        "name": str,  # of an operator
        "python": float,  # share of a pace
        "step": float,  # seconds
        "parameter": float,  # seconds
        "cold": float,  # seconds, as of the others with this prefix
        "cold_python": float,
        "cold_step": float,
        "cold_parameter": float,
        "spread": float,  # error of a pace, as a logarithm
        "calls": float,  # operators on lists
    },
    total=False,
)


class Conditions(TypedDict, total=False):
    """The state of the device during a measurement; on the host, the processors that others used."""

    sm_clock_mhz: float  # the median, as of the others
    sm_clock_min_mhz: float
    memory_clock_mhz: float
    power_w: float
    temperature_c: float
    throttle: list[str]  # reasons
    others: float  # share


class CeilingRecord(TypedDict, total=False):
    """A `Ceiling`, or a `Missing` one with `why`."""

    id: str
    why: str
    value: float
    unit: str
    low: float
    high: float
    samples: int
    device: int | None
    at: Setting
    series: list[Setting]
    conditions: Conditions
    flags: list[str]
    datasheet: Published | None


class Counters(TypedDict, total=False):
    """Hardware counters that were qualified with one version of the driver."""

    groups: list[list[str]]
    refused: dict[str, str]
    interval_ns: int
    trigger: str
    chip: str
    driver: str | None
    measured_ns: int


class Recalled(TypedDict, total=False):
    """The result of a check at the time of recording."""

    status: Literal["pass", "fail", "not_applicable", "abstained"]
    observed: str


class Undescribed(TypedDict):
    """A part of the machine that was not described, and the reason."""

    what: str
    why: str


class Machine(TypedDict, total=False):
    """A machine file, or the `machine.json` of a sounding."""

    fingerprint: str
    host: Host
    gpus: list[Gpu]
    links: Links | None
    why_no_gpu: str | None
    versions: dict[str, str | None]
    ceilings: list[CeilingRecord]
    missing: list[CeilingRecord]
    counters: Counters
    why_no_counters: str
    measured_ns: int | None
    tool: str
    checks: dict[str, Recalled]
    abstained: list[Undescribed]
