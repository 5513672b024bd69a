"""What the operating system says about the processor, the memory and itself."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any

ROOT = Path("/")


def read(root: Path = ROOT) -> dict[str, Any]:
    """Processor, memory and system as a JSON-able dict; `root` stands in for `/` in tests."""
    return {
        "hostname": platform.node(),
        "cpu": cpu(root),
        "memory_bytes": memory_bytes(root),
        "kernel": platform.release(),
        "os": os_name(root),
        "container": container(root),
        "virtual_machine": virtual_machine(root),
    }


def cpu(root: Path = ROOT) -> dict[str, Any]:
    """Model, logical cores, cores this process may use, limit of the control group, NUMA nodes."""
    return {
        "model": cpu_model(root),
        "architecture": platform.machine(),
        "logical_cores": os.cpu_count(),
        "usable_cores": _usable(),
        "quota_cores": quota(root),
        "numa_nodes": max(1, len(list((root / "sys/devices/system/node").glob("node[0-9]*")))),
    }


def cpu_model(root: Path = ROOT) -> str:
    """The processor's name as the kernel writes it, else the architecture."""
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text(root / "proc/cpuinfo"), re.M)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _usable() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def quota(root: Path = ROOT) -> float | None:
    """Cores that the control group allows, or None where it sets no limit."""
    words = text(root / "sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
        return int(words[0]) / int(words[1])
    return None


def memory_bytes(root: Path = ROOT) -> int | None:
    """Installed memory, or the control group's limit where that is smaller."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", text(root / "proc/meminfo"), re.M)
    limit = text(root / "sys/fs/cgroup/memory.max").strip()
    sizes = [int(found.group(1)) * 1024] if found else []
    sizes += [int(limit)] if limit.isdigit() else []
    return min(sizes) if sizes else None


def os_name(root: Path = ROOT) -> str:
    """The distribution's own name, else the platform's."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(root / "etc/os-release"), re.M)
    return found.group(1) if found else platform.platform()


def container(root: Path = ROOT) -> str | None:
    """A guess at the container runtime; None means that nothing points to one."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = text(root / "proc/1/cgroup")
    for name in ("kubepods", "docker", "containerd", "lxc", "libpod"):
        if name in groups:
            return name
    return os.environ.get("SINGULARITY_NAME") and "singularity"


def virtual_machine(root: Path = ROOT) -> str | None:
    """The hypervisor's product name, or `yes` where only the processor's flag shows one."""
    product = text(root / "sys/class/dmi/id/sys_vendor").strip()
    known = ("QEMU", "VMware", "Xen", "Microsoft", "Amazon EC2", "Google", "innotek", "Firecracker")
    if any(name in product for name in known):
        return product
    return "yes" if re.search(r"^flags\s*:.*\bhypervisor\b", text(root / "proc/cpuinfo"), re.M) else None


def free_bytes(folder: Path) -> int | None:
    """Space left for `folder`, or for the nearest directory above it that exists."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            return shutil.disk_usage(place).free
    return None


def text(path: Path) -> str:
    """The file's text, or nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
