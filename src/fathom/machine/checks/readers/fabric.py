"""Links of GPUs and hosts: PCIe, NVLink, peer access, RDMA ports, and modules that expose GPU memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import combinations

from fathom.machine.checks.gpu import Gpu, each, gpu_reader, gpus
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, abstained, failed, judged, passed, unfit
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.files import NotOfferedError, UnreadableError, natural
from fathom.machine.links import MOST_LINKS
from fathom.machine.nvml import ask
from fathom.units import GIB

PCI = "sys/bus/pci/devices"
READ = 0
PEER_REASONS = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "they are on different root complexes",
    4: "a registry key disables it",
    5: "not supported",
}
NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3
BRIDGE = "0x0604"
EXTENDED, ACS = 0x100, 0x0D
REDIRECTS = 0x0C  # request and completion redirect of the ACS control register
DMABUF_KERNEL = (5, 12)


@gpu_reader("gpu.pcie_width")
def pcie_width(gpu: Gpu) -> Observation:
    now = gpu.ask("CurrPcieLinkWidth")
    own = f"{PCI}/{gpu.address}/max_link_width"
    top = max(gpu.ask("MaxPcieLinkWidth"), gpu.host.number(own) if gpu.host.exists(own) else 0)
    return _link(gpu, now, top, f"{now} of {top} lanes")


@gpu_reader("gpu.pcie_generation")
def pcie_generation(gpu: Gpu) -> Observation:
    own, system = gpu.ask("GpuMaxPcieLinkGeneration"), gpu.ask("MaxPcieLinkGeneration")
    if system < own:
        return failed(f"the slot supports generation {system}, the GPU {own}")
    now = gpu.ask("CurrPcieLinkGeneration")
    return _link(gpu, now, system, f"generation {now} of {system}")


def _link(gpu: Gpu, now: int, top: int, words: str) -> Observation:
    if now >= top:
        return passed(words)
    if gpu.idle:
        return abstained(f"{words}, but idle links save power: check again under load")
    return failed(words)


@gpu_reader("gpu.bar1")
def bar1(gpu: Gpu) -> Observation:
    window, memory = gpu.ask("BAR1MemoryInfo").bar1Total, gpu.ask("MemoryInfo").total
    words = f"BAR1 shows {window / GIB:.2f} of {memory / GIB:.1f} GiB"
    return judged(window >= memory, words)


@gpu_reader("gpu.nvlink")
def nvlink(gpu: Gpu) -> Observation:
    states = [*_link_states(gpu)]
    if not any(states):
        return unfit("no GPU uses NVLink")
    return judged(all(states), f"{sum(states)} of {len(states)} NVLinks are up")


def _link_states(gpu: Gpu) -> Iterator[bool]:
    for link in range(MOST_LINKS):
        try:
            yield bool(gpu.ask("NvLinkState", link))
        except (NotOfferedError, UnreadableError):  # past the last link
            return


@reader("gpu.peer_access")
def peer_access(host: Host, check: Check) -> Iterator[Observation]:
    devices = gpus(host)
    if len(devices) < 2:
        raise NotOfferedError("there is only one GPU")
    for first, second in combinations(devices, 2):
        status = ask(host.nvml, "nvmlDeviceGetP2PStatus", first.handle, second.handle, READ)
        words = PEER_REASONS.get(status, "the driver does not know why") if status else "peer access works"
        yield judged(status == 0, words, f"GPU {first.index} and {second.index}")


@reader("gpu.fabric_manager")
def fabric_manager(host: Host, check: Check) -> Answer:
    states = _fabric_states(host)
    if states:
        return [_registered(state, name) for name, state in states.items()]
    if not host.paths("proc/driver/nvidia-nvswitch/devices/*"):
        return unfit("there is no NVSwitch")
    running = "nv-fabricmanager" in _processes(host)
    return judged(running, f"nv-fabricmanager is {'running' if running else 'not running'}")


def _registered(state: int, name: str) -> Observation:
    words = {NOT_STARTED: "not started", IN_PROGRESS: "still in progress", COMPLETED: "completed"}
    return judged(state == COMPLETED, f"registration with the fabric: {words.get(state, 'unknown')}", name)


def _fabric_states(host: Host) -> dict[str, int]:
    """Return the fabric state of each GPU that belongs to a fabric (Hopper and newer)."""
    states = {}
    for gpu in gpus(host):
        try:
            info = host.nvml.c_nvmlGpuFabricInfo_t()
            gpu.ask("GpuFabricInfo", ctypes.byref(info))
            states[gpu.name] = int(info.state)
        except (AttributeError, NotOfferedError, UnreadableError):
            continue
    return {name: state for name, state in states.items() if state}


def _processes(host: Host) -> set[str]:
    names = set()
    for path in host.paths("proc/[0-9]*/comm"):
        try:
            names.add(host.text(path).strip())
        except UnreadableError:  # it has ended
            continue
    return names


@reader("gpu.iommu")
def iommu(host: Host, check: Check) -> Answer:
    if host.architecture != "x86_64":
        return unfit("GPUs need the IOMMU on this processor")

    def look(gpu: Gpu) -> Observation:
        folder = f"{PCI}/{gpu.address}/iommu_group"
        if not host.exists(folder):
            return passed("no IOMMU translation")
        kind = host.text(f"{folder}/type").strip()
        return judged(kind == "identity", f"IOMMU domain type: {kind}")

    return each(gpus(host), look)


@reader("gpu.acs")
def acs(host: Host, check: Check) -> Observation:
    if len(gpus(host)) < 2 and not host.paths("sys/class/infiniband/*"):
        return unfit("no other device could reach a GPU")
    classes = host.paths(f"{PCI}/*/class")
    bridges = [path.removesuffix("/class") for path in classes if host.text(path).startswith(BRIDGE)]
    if not bridges:
        return unfit("there is no PCIe bridge")
    redirecting = [p.split("/")[-1] for p in bridges if _acs_control(host.octets(f"{p}/config")) & REDIRECTS]
    words = f"{len(redirecting)} of {len(bridges)} bridges redirect peer traffic to the root complex"
    return judged(not redirecting, words)


def _acs_control(config: bytes) -> int:
    """Read the ACS control register of a configuration space; 0 without ACS. Raises UnreadableError."""
    if len(config) <= EXTENDED:
        raise UnreadableError("reading the extended configuration of PCIe bridges needs root")
    at = EXTENDED
    for _ in range(len(config) // 4):  # a damaged chain could loop
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        at = header >> 20
        if at < EXTENDED:
            break
    return 0


@reader("gpu.peermem")
def peermem(host: Host, check: Check) -> Observation:
    gpus(host)
    if not host.paths("sys/class/infiniband/*"):
        return unfit("there is no RDMA device")
    if host.exists("sys/module/nvidia_peermem") or host.exists("sys/module/nv_peer_mem"):
        return passed("nvidia-peermem is loaded")
    if "Open Kernel Module" in host.text("proc/driver/nvidia/version") and _kernel(host) >= DMABUF_KERNEL:
        return passed("the open kernel module supports DMA-BUF")
    return failed("nvidia-peermem is not loaded, and DMA-BUF is not available")


def _kernel(host: Host) -> tuple[int, ...]:
    release = host.text("proc/sys/kernel/osrelease").split("-")[0].split(".")[:2]
    return tuple(number for number in map(natural, release) if number is not None)


@reader("gpu.storage")
def storage(host: Host, check: Check) -> Observation:
    gpus(host)
    users = [name for name in host.distributions if name.startswith(("kvikio", "nvidia-dali"))]
    if not users:
        return unfit("no installed package uses cuFile")
    if host.exists("proc/driver/nvidia-fs/version"):
        return passed("nvidia-fs is loaded")
    if host.exists("etc/cufile.json") and '"use_pci_p2pdma": true' in host.text("etc/cufile.json"):
        return passed("cuFile is set to use PCI peer-to-peer DMA")
    return failed(f"{users[0]} is installed, but nvidia-fs is not loaded")


@reader("kernel.rdma_ports")
def rdma_ports(host: Host, check: Check) -> Iterator[Observation]:
    ports = host.paths("sys/class/infiniband/*/ports/*")
    if not ports:
        raise NotOfferedError("there is no RDMA device")
    for port in ports:
        state = host.text(f"{port}/state").strip()
        rate = host.text(f"{port}/rate").strip()
        device, number = port.split("/")[3], port.split("/")[5]
        yield judged(
            "ACTIVE" in state, f"{state or 'no state'}, {rate or 'no rate'}", f"{device} port {number}"
        )
