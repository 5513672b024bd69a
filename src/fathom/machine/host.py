"""Processor, memory and operating system, as the kernel reports them."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path
from typing import Any

from fathom.machine import cgroup, disks, network, numa, surroundings
from fathom.machine import cpu as processor
from fathom.machine.cgroup import quota
from fathom.machine.cpu import model as cpu_model
from fathom.machine.files import text
from fathom.machine.surroundings import container, virtual_machine

__all__ = [
    "container",
    "cpu",
    "cpu_model",
    "free_bytes",
    "memory_bytes",
    "os_name",
    "quota",
    "read",
    "text",
    "virtual_machine",
]

ROOT = Path("/")


def read(root: Path = ROOT) -> dict[str, Any]:
    """Describe processor, memory, NUMA, disks, network, system and surroundings as a JSON-able dict.

    `root` stands in for `/` in tests.
    """
    return {
        "hostname": platform.node(),
        "product": surroundings.product(root),
        "cpu": cpu(root),
        "memory_bytes": memory_bytes(root),
        "numa": numa.nodes(root),
        "disks": disks.disks(root),
        "filesystems": disks.here(root),
        "network": network.interfaces(root),
        "rdma": network.rdma(root),
        "kernel": platform.release(),
        "os": os_name(root),
        "container": container(root),
        "virtual_machine": virtual_machine(root),
        "limits": {**cgroup.limits(root), "shm_bytes": disks.size_of_shm(root)},
        "kubernetes": surroundings.kubernetes(root),
    }


def cpu(root: Path = ROOT) -> dict[str, Any]:
    """Describe model, cores, usable cores, NUMA nodes, caches, clocks and instruction sets."""
    return processor.read(root)


def memory_bytes(root: Path = ROOT) -> int | None:
    """Return installed memory, or the control group's limit if that is smaller."""
    total = re.search(r"^MemTotal:\s+(\d{1,20}) kB", text(root / "proc/meminfo"), re.M)
    installed = int(total.group(1)) * 1024 if total else None
    return min((size for size in (installed, cgroup.memory(root)) if size is not None), default=None)


def os_name(root: Path = ROOT) -> str:
    """Return the distribution's name, or the platform's if it has none."""
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(root / "etc/os-release"), re.M)
    return name.group(1) if name else platform.platform()


def free_bytes(folder: Path) -> int | None:
    """Return the free space of `folder`, or of its nearest existing ancestor."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            return shutil.disk_usage(place).free
    return None
