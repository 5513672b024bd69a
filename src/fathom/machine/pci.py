"""A device's position in the PCI tree, from sysfs."""

from __future__ import annotations

from pathlib import Path

from fathom.machine.files import number, text

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def address(bus: str | None) -> str | None:
    """Return the kernel's spelling of a bus id: `00000000:3B:00.0` becomes `0000:3b:00.0`."""
    domain, colon, rest = (bus or "").partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest.lower()}" if colon else None
    except ValueError:
        return None


def folder(root: Path, bus: str | None) -> Path | None:
    """Return the device's sysfs directory, or None if there is none."""
    name = address(bus)
    path = root / "sys/bus/pci/devices" / name if name else None
    return path if path and path.exists() else None


def numa_node(device: Path | None) -> int | None:
    """Return the NUMA node of `device` (its sysfs directory), or None if the firmware names none."""
    node = number(device / "numa_node") if device else None
    return node if node is not None and node >= 0 else None


def near_cpus(device: Path | None) -> str | None:
    """Return the CPUs local to `device` as ranges: `0-15,32-47`."""
    return text(device / "local_cpulist").strip() or None if device else None


def link(device: Path | None) -> dict[str, int | None]:
    """Return the PCIe link's current and maximum generation and width."""
    if device is None:
        return dict.fromkeys(("generation", "width", "generation_max", "width_max"))
    return {
        "generation": _generation(device / "current_link_speed"),
        "width": number(device / "current_link_width"),
        "generation_max": _generation(device / "max_link_speed"),
        "width_max": number(device / "max_link_width"),
    }


def _generation(path: Path) -> int | None:
    return _GENERATIONS.get(text(path).partition(" ")[0])


def relation(root: Path, a: str | None, b: str | None) -> str | None:
    """Return how two bus ids are linked, as `nvidia-smi topo -m` does: PIX, PXB, PHB, NODE, SYS or None."""
    here, there = folder(root, a), folder(root, b)
    if here is None or there is None:
        return None
    path_a, path_b = _path(here), _path(there)
    shared = next((i for i, (x, y) in enumerate(zip(path_a, path_b, strict=False)) if x != y), None)
    if shared is None:
        return "PIX"
    if shared == 0:
        return _across_bridges(root, numa_node(here), numa_node(there))
    if shared == 1:
        return "PHB"
    # Below a common switch, each path has a downstream port and the device itself.
    return "PIX" if max(len(path_a), len(path_b)) - shared <= 2 else "PXB"


def _across_bridges(root: Path, a: int | None, b: int | None) -> str | None:
    if (a is None or b is None) and (root / "sys/devices/system/node/node1").exists():
        return None
    return "NODE" if a == b else "SYS"


def _path(device: Path) -> list[str]:
    """Return the device's path from the host bridge down: `pci0000:00`, `0000:00:01.0`, …"""
    parts = device.resolve().parts
    start = next((i for i, part in enumerate(parts) if part.startswith("pci")), 0)
    return list(parts[start:])
