"""The resources that a manifest's container requests, and values from the manifest for the fix of its pod.

A value that only a person can supply is `<NAME>`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
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
MODEL = re.compile(r".*(gpu|accelerator|instance-type).*", re.I)  # node labels that name a GPU's model
PRODUCT = {"amd.com/gpu": "amd.com/gpu.product-name"}  # label set by the vendor's discovery, by resource
NVIDIA_PRODUCT = "nvidia.com/gpu.product"
NPROC = re.compile(r"--nproc[-_]per[-_]node[= ]+([0-9]{1,4})\b")
SIZES = (("Gi", 1 << 30), ("Mi", 1 << 20))


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
    """Return whether the container requests a GPU, as a resource or through a claim."""
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


def cpus(pod: Pod, container: Container) -> str:
    """Return the container's CPUs (limit, else request), rounded up."""
    count = _own(pod, container, "cpu")[1]
    return "<CPUS>" if count is None else str(max(math.ceil(count), 1))


def memory(pod: Pod, container: Container) -> str:
    """Return the container's memory as the manifest writes it (limit, else request)."""
    return _own(pod, container, "memory")[0] or "<MEMORY>"


def _own(pod: Pod, container: Container, name: str) -> tuple[str, float | None]:
    for asked in (limits(pod, container), requests(pod, container)):
        amount = quantity(asked.get(name))
        if amount:
            return str(asked[name]), amount
    return "", None


def half(pod: Pod, container: Container) -> str:
    """Return half of the container's memory limit in GiB or MiB, rounded down."""
    limit = quantity(limits(pod, container).get("memory")) or 0
    sizes = (f"{int(limit / 2 / size)}{unit}" for unit, size in SIZES if limit / 2 >= size)
    return next(sizes, "<SIZE>")


def threads(pod: Pod, container: Container) -> dict[str, str]:
    """Return the OpenMP threads per process, the CPU limit over the processes, and how they were computed."""
    limit = limits(pod, container).get("cpu")
    count, why = _processes(pod, container)
    each = int((quantity(limit) or 0) / count)
    return {"threads": str(max(each, 1)), "reckoned": f"{limit} CPUs over {why}"}


def _processes(pod: Pod, container: Container) -> tuple[int, str]:
    lines = [v for name in ("command", "args") for v in _words(container.get(name))]
    named = NPROC.findall(" ".join(lines))
    if named and int(named[-1]):
        return int(named[-1]), f"{named[-1]} processes (--nproc-per-node)"
    amounts = matching(requests(pod, container), GPU).values()
    count = int(sum(quantity(amount) or 0 for amount in amounts))
    return (count, f"{count} processes, one per GPU") if count > 1 else (1, "one process")


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def listed(amounts: dict[str, Any], otherwise: str) -> str:
    """Format resources as a YAML flow mapping without its braces."""
    return ", ".join(f"{name}: {amount}" for name, amount in amounts.items()) or otherwise


def rdma(pods: Iterable[Pod]) -> str:
    """Return the RDMA device that another container of the same manifest requests."""
    asked = (requests(pod, container) for pod in pods for _, container in pod.containers)
    devices = next(filter(None, (matching(each, RDMA) for each in asked)), {})
    return listed(devices, "<RDMA_RESOURCE>: <COUNT>")


def product(pod: Pod, pods: Iterable[Pod]) -> str:
    """Return the node label and value that select the GPU's model, or a placeholder for the value."""
    known = next(filter(None, map(_chosen, (pod, *pods))), None)
    if known:
        return f"{known[0]}: {known[1]}"
    names = {name for _, c in pod.containers for name in requests(pod, c)}
    label = next((label for name, label in PRODUCT.items() if name in names), NVIDIA_PRODUCT)
    return f"{label}: <MODEL>"


def _chosen(pod: Pod) -> tuple[str, str] | None:
    """Return the pod's node selector for the GPU; of its labels, only names of node labels count."""
    own = {**pod.annotations, **pod.labels}
    labels = {name: own[name] for name in (NVIDIA_PRODUCT, *PRODUCT.values()) if name in own}
    labels |= mapping(pod.spec.get("nodeSelector"))
    known = [(n, v) for n, v in labels.items() if MODEL.fullmatch(str(n)) and isinstance(v, str) and v]
    return known[-1] if known else None


def huge(pages: dict[str, Any]) -> dict[str, str]:
    """Return the limits and volumes for the huge pages that a container requests."""
    kinds = [name.removeprefix("hugepages-") for name in pages]
    volumes = (f"{{name: huge-{kind.lower()}, emptyDir: {{medium: HugePages-{kind}}}}}" for kind in kinds)
    return {"pages": listed(pages, ""), "volumes": ", ".join(volumes)}
