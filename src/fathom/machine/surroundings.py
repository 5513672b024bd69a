"""Detect the environment of this system: a virtual machine, a container, a Kubernetes pod."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fathom.machine.disks import mounts
from fathom.machine.files import ROOT, text
from fathom.machine.model import Kubernetes

_RUNTIMES = ("kubepods", "docker", "containerd", "lxc", "libpod", "crio")
_VENDORS = ("QEMU", "VMware", "Xen", "Microsoft", "Amazon EC2", "Google", "innotek", "Firecracker")
_LAYERS = {"/var/lib/docker/": "docker", "/containerd/": "containerd", "/containers/storage/": "podman"}


def container(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the likely container runtime, or None if there is no sign of one."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = text(root / "proc/1/cgroup")
    named = next((name for name in _RUNTIMES if name in groups), None)
    if named or environment.get("SINGULARITY_NAME") or environment.get("APPTAINER_NAME"):
        return named or ("apptainer" if environment.get("APPTAINER_NAME") else "singularity")
    return _by_layers(root)


def _by_layers(root: Path) -> str | None:
    """Return the runtime by the layers of the root file system, because a cgroup namespace hides its name."""
    known = mounts(text(root / "proc/self/mountinfo"))
    layers = next((m.options for m in known if m.point == "/" and m.type == "overlay"), "")
    return next((name for path, name in _LAYERS.items() if path in layers), None)


def virtual_machine(root: Path = ROOT) -> str | None:
    """Return the hypervisor's vendor, or `yes` if only a processor flag shows one; None outside a VM."""
    product = text(root / "sys/class/dmi/id/sys_vendor").strip()
    if any(name in product for name in _VENDORS):
        return product
    return "yes" if re.search(r"^flags\s*:.*\bhypervisor\b", text(root / "proc/cpuinfo"), re.M) else None


def product(root: Path = ROOT) -> str | None:
    """Return the maker and model (in a cloud, the instance type) from the firmware, or None."""
    folder = root / "sys/class/dmi/id"
    words = [text(folder / name).strip() for name in ("sys_vendor", "product_name")]
    return " ".join(word for word in words if word) or None


def kubernetes(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> Kubernetes | None:
    """Return this process's pod, namespace and node, each None if not visible; None outside Kubernetes."""
    account = root / "var/run/secrets/kubernetes.io/serviceaccount"
    if not (environment.get("KUBERNETES_SERVICE_HOST") or account.exists()):
        return None
    return {
        "pod": environment.get("POD_NAME") or environment.get("HOSTNAME"),
        "namespace": environment.get("POD_NAMESPACE") or text(account / "namespace").strip() or None,
        "node": environment.get("NODE_NAME"),
    }
