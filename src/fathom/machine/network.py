"""Network and RDMA devices, from sysfs."""

from __future__ import annotations

import re
from pathlib import Path

from fathom.machine import pci
from fathom.machine.files import ROOT, link_name, names, number, text
from fathom.machine.model import Adapter, Interface, Place, Port


def interfaces(root: Path = ROOT) -> list[Interface]:
    """Return the hardware interfaces and bonds; if there are none, the virtual interfaces that are up.

    `speed_mbps` is None if the link is down or the driver does not report it, as in virtual machines.
    """
    folder = root / "sys/class/net"
    every = [name for name in names(folder) if name != "lo"]
    real = [n for n in every if (folder / n / "device").exists() or (folder / n / "bonding").exists()]
    up = [name for name in every if text(folder / name / "operstate").strip() == "up"]
    return [_interface(folder / name) for name in real or up]


def _interface(path: Path) -> Interface:
    speed = number(path / "speed")
    return {
        "name": path.name,
        "state": text(path / "operstate").strip() or None,
        "speed_mbps": speed if speed and speed > 0 else None,
        "mtu": number(path / "mtu"),
        "driver": link_name(path / "device/driver"),
        **_place(path / "device"),
    }


def _place(device: Path) -> Place:
    """Return the bus id and NUMA node of `device`, or of the PCI device above it (for virtio)."""
    try:
        at = device.resolve()
    except OSError:
        return {"pci_bus": None, "numa_node": None}
    on_bus = next((part for part in (at, *at.parents) if part.name.count(":") == 2), None)
    return {"pci_bus": on_bus.name if on_bus else None, "numa_node": pci.numa_node(on_bus)}


def rdma(root: Path = ROOT) -> list[Adapter]:
    """Return RDMA devices (InfiniBand, RoCE, EFA) with their ports."""
    folder = root / "sys/class/infiniband"
    return [_adapter(folder / name) for name in names(folder)]


def _adapter(path: Path) -> Adapter:
    return {
        "name": path.name,
        "driver": link_name(path / "device/driver"),
        "firmware": text(path / "fw_ver").strip() or None,
        "interfaces": names(path / "device/net"),
        "ports": [_port(path / "ports" / port) for port in names(path / "ports")],
        **_place(path / "device"),
    }


def _port(path: Path) -> Port:
    """Return a port's state and rate, parsed from kernel text like `4: ACTIVE` and `400 Gb/sec (4X NDR)`."""
    rate = text(path / "rate").partition(" ")[0]
    return {
        "port": path.name,
        "state": text(path / "state").rpartition(":")[2].strip() or None,
        "rate_gbps": float(rate) if re.fullmatch(r"\d{1,6}(\.\d+)?", rate) else None,
        "link_layer": text(path / "link_layer").strip() or None,
    }
