"""The resources that a manifest's container requests."""

from __future__ import annotations

import re
from typing import Any

from fathom.machine.checks.manifest import Container, Pod, mapping, mappings

GPU = re.compile(r"(nvidia\.com/(gpu|mig-.+)|amd\.com/gpu)(\.shared)?")
RDMA = re.compile(
    r"rdma/.+|vpc\.amazonaws\.com/efa|networking\.gke\.io\.networks/.+|"
    r"[^/]+/([^/]*(rdma|hostdev|mlnx|sriov|roce)[^/]*|ib.*|hca.*)",
    re.IGNORECASE,
)
_POWERS = enumerate(("n", "u", "m", "", *"kMGTPE"), start=-3)
_UNITS = {unit: 10.0 ** (3 * power) for power, unit in _POWERS}
_UNITS |= {f"{letter}i": 2.0 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)}


def quantity(value: Any) -> float | None:
    """Parse a Kubernetes quantity (500m, 16Gi, 1e9); None for anything else."""
    parsed = re.fullmatch(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?)([A-Za-z]{0,2})", str(value).strip())
    if isinstance(value, bool) or not parsed or parsed.group(2) not in _UNITS:
        return None
    return float(parsed.group(1)) * _UNITS[parsed.group(2)]


def limits(pod: Pod, container: Container) -> dict[str, Any]:
    """Return the container's limits, which override those of its pod."""
    return _asked(pod, container, "limits")


def requests(pod: Pod, container: Container) -> dict[str, Any]:
    """Return the container's requests; a resource with only a limit requests that much."""
    return {**limits(pod, container), **_asked(pod, container, "requests")}


def _asked(pod: Pod, container: Container, what: str) -> dict[str, Any]:
    of_pod = mapping(mapping(pod.spec.get("resources")).get(what))
    return {**of_pod, **mapping(mapping(container.get("resources")).get(what))}


def matching(asked: dict[str, Any], pattern: re.Pattern[str]) -> dict[str, Any]:
    """Return the resources whose name matches."""
    return {str(name): amount for name, amount in asked.items() if pattern.fullmatch(str(name))}


def wants_gpu(pod: Pod, container: Container) -> bool:
    """Whether the container requests a GPU, as a resource or through a claim."""
    return bool(matching(requests(pod, container), GPU) or mapping(container.get("resources")).get("claims"))


def pod_wants_gpu(pod: Pod) -> bool:
    return any(wants_gpu(pod, container) for _, container in pod.containers)


def wants_rdma(pod: Pod, container: Container) -> bool:
    return bool(matching(requests(pod, container), RDMA))


def capabilities(container: Container) -> set[str]:
    """Return the capabilities that the container adds; `ALL` for a privileged one."""
    context = mapping(container.get("securityContext"))
    added = mapping(context.get("capabilities")).get("add")
    names = {str(name).upper().removeprefix("CAP_") for name in added} if isinstance(added, list) else set()
    return names | ({"ALL"} if context.get("privileged") is True else set())


def environment(container: Container) -> dict[str, str]:
    """Return the variables with a literal value."""
    return {
        str(v["name"]): str(v["value"]) for v in mappings(container.get("env")) if {"name", "value"} <= {*v}
    }


def mounted(pod: Pod, container: Container, path: str) -> dict[str, Any] | None:
    """Return the volume that the container mounts at `path`, or None."""
    mounts = mappings(container.get("volumeMounts"))
    names = {str(m.get("name")) for m in mounts if str(m.get("mountPath", "")).rstrip("/") == path}
    return next((v for v in mappings(pod.spec.get("volumes")) if str(v.get("name")) in names), None)
