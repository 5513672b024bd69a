"""Links between GPUs, and between GPUs and network adapters: NVLink, PCIe switches, host bridges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fathom.machine import pci
from fathom.machine.model import Adapter, Gpu, Links, NvLink
from fathom.machine.nvml import NvmlDevice

MOST_LINKS = 36
LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}  # nvmlGpuTopologyLevel_t
VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_TO_GPU, _TO_SWITCH = 0, 2  # NVML_NVLINK_DEVICE_TYPE_*
_P2P_NVLINK, _P2P_OK = 2, 0


def nvlink(device: NvmlDevice) -> NvLink | None:
    """Return one GPU's NVLinks; None if it has none or the driver does not report them."""
    most = getattr(device.nvml, "NVML_NVLINK_MAX_LINKS", MOST_LINKS)
    states = [device.ask_quietly("NvLinkState", link) for link in range(most)]
    if all(state is None for state in states):
        return None
    active = [link for link, state in enumerate(states) if state]
    ends = [_end(device, link) for link in active]
    peers = sorted({bus for bus in ends if bus and bus != "switch"})
    return {
        "links": len(active),
        "off": sum(state == 0 for state in states),
        "version": VERSIONS.get(device.ask_quietly("NvLinkVersion", active[0])) if active else None,
        "to_switch": ends.count("switch"),
        "peers": {bus: ends.count(bus) for bus in peers},
    }


def _end(device: NvmlDevice, link: int) -> str | None:
    """Return the other end of a link: `switch`, or a GPU's bus id; None if the driver hides it."""
    kind = device.ask_quietly("NvLinkRemoteDeviceType", link)
    if kind == _TO_SWITCH:
        return "switch"
    if kind not in (None, _TO_GPU):
        return None
    bus = getattr(device.ask_quietly("NvLinkRemotePciInfo", link), "busId", None)
    return pci.address(bus.decode() if isinstance(bus, bytes) else bus)


def topology(devices: Sequence[NvmlDevice], gpus: list[Gpu], nics: list[Adapter], root: Path) -> Links:
    """Return the links between GPUs and RDMA devices as in `nvidia-smi topo -m`.

    A cell is X (the device itself), NV# (# NVLinks), PIX, PXB, PHB, NODE, SYS, or None if unknown.
    """
    names = [f"GPU{gpu['index']}" for gpu in gpus] + [nic["name"] for nic in nics]
    buses = [part["pci_bus"] for part in (*gpus, *nics)]
    matrix: list[list[str | None]] = [["X" if a == b else None for b in names] for a in names]
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            between = (_nvlinks(devices, gpus, i, j) or _level(devices, i, j)) if j < len(devices) else None
            matrix[i][j] = matrix[j][i] = between or pci.relation(root, buses[i], buses[j])
    return {"names": names, "matrix": matrix}


def _nvlinks(devices: Sequence[NvmlDevice], gpus: list[Gpu], i: int, j: int) -> str | None:
    a, b = gpus[i].get("nvlink"), gpus[j].get("nvlink")
    if not a or not b:
        return None
    count = a["peers"].get(pci.address(gpus[j]["pci_bus"]) or "", 0) or min(a["to_switch"], b["to_switch"])
    status = devices[i].ask_quietly("P2PStatus", devices[j].handle, _P2P_NVLINK) if not count else None
    if status == _P2P_OK:  # linked through a switch that the virtual machine hides
        count = min(a["links"], b["links"])
    return f"NV{count}" if count else None


def _level(devices: Sequence[NvmlDevice], i: int, j: int) -> str | None:
    level = devices[i].ask_quietly("TopologyCommonAncestor", devices[j].handle)
    return LEVELS.get(level) if isinstance(level, int) else None
