"""Processor, memory and operating system, as the kernel reports them."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path
from typing import Any

from fathom.machine import cgroup, cpu, disks, network, surroundings
from fathom.machine.files import text

ROOT = Path("/")


def read(root: Path = ROOT) -> dict[str, Any]:
    """Describe processor, memory, NUMA, disks, network, system and surroundings as a JSON-able dict.

    `root` stands in for `/` in tests.
    """
    return {
        "hostname": platform.node(),
        "product": surroundings.product(root),
        "cpu": cpu.read_cpu(root),
        "memory_bytes": memory_bytes(root),
        "numa": cpu.numa_nodes(root),
        "disks": disks.disks(root),
        "filesystems": disks.here(root),
        "network": network.interfaces(root),
        "rdma": network.rdma(root),
        "kernel": platform.release(),
        "os": os_name(root),
        "container": surroundings.container(root),
        "virtual_machine": surroundings.virtual_machine(root),
        "limits": {**cgroup.limits(root), "shm_bytes": disks.size_of_shm(root)},
        "kubernetes": surroundings.kubernetes(root),
    }


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
