"""Values for the fix of a pod, from its manifest; `<NAME>` if only a person can supply the value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from fathom.machine.checks import resources
from fathom.machine.checks.manifest import Container, Pod, mapping

MODEL = re.compile(r".*(gpu|accelerator|instance-type).*", re.I)  # node labels that name a GPU's model
PRODUCT = {"amd.com/gpu": "amd.com/gpu.product-name"}  # label set by the vendor's discovery, by resource
NVIDIA_PRODUCT = "nvidia.com/gpu.product"
NPROC = re.compile(r"--nproc[-_]per[-_]node[= ]+([0-9]{1,4})\b")
SIZES = (("Gi", 1 << 30), ("Mi", 1 << 20))


def cpus(pod: Pod, container: Container) -> str:
    """Return the container's CPUs (limit, else request), rounded up."""
    count = _own(pod, container, "cpu")[1]
    return "<CPUS>" if count is None else str(max(math.ceil(count), 1))


def memory(pod: Pod, container: Container) -> str:
    """Return the container's memory as the manifest writes it (limit, else request)."""
    return _own(pod, container, "memory")[0] or "<MEMORY>"


def _own(pod: Pod, container: Container, name: str) -> tuple[str, float | None]:
    for asked in (resources.limits(pod, container), resources.requests(pod, container)):
        amount = resources.quantity(asked.get(name))
        if amount:
            return str(asked[name]), amount
    return "", None


def half(pod: Pod, container: Container) -> str:
    """Return half of the container's memory limit in GiB or MiB, rounded down."""
    limit = resources.quantity(resources.limits(pod, container).get("memory")) or 0
    sizes = (f"{int(limit / 2 / size)}{unit}" for unit, size in SIZES if limit / 2 >= size)
    return next(sizes, "<SIZE>")


def threads(pod: Pod, container: Container) -> dict[str, str]:
    """Return the OpenMP threads per process, the CPU limit over the processes, and how they were computed."""
    limit = resources.limits(pod, container).get("cpu")
    count, why = _processes(pod, container)
    each = int((resources.quantity(limit) or 0) / count)
    return {"threads": str(max(each, 1)), "reckoned": f"{limit} CPUs over {why}"}


def _processes(pod: Pod, container: Container) -> tuple[int, str]:
    lines = [v for name in ("command", "args") for v in _words(container.get(name))]
    named = NPROC.findall(" ".join(lines))
    if named and int(named[-1]):
        return int(named[-1]), f"{named[-1]} processes (--nproc-per-node)"
    amounts = resources.matching(resources.requests(pod, container), resources.GPU).values()
    count = int(sum(resources.quantity(amount) or 0 for amount in amounts))
    return (count, f"{count} processes, one per GPU") if count > 1 else (1, "one process")


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def listed(amounts: dict[str, Any], otherwise: str) -> str:
    """Format resources as a YAML flow mapping without its braces."""
    return ", ".join(f"{name}: {amount}" for name, amount in amounts.items()) or otherwise


def rdma(pods: Iterable[Pod]) -> str:
    """Return the RDMA device that another container of the same manifest requests."""
    asked = (resources.requests(pod, container) for pod in pods for _, container in pod.containers)
    devices = next(filter(None, (resources.matching(each, resources.RDMA) for each in asked)), {})
    return listed(devices, "<RDMA_RESOURCE>: <COUNT>")


def product(pod: Pod, pods: Iterable[Pod]) -> str:
    """Return the node label and value that select the GPU's model, or a placeholder for the value."""
    known = next(filter(None, map(_chosen, (pod, *pods))), None)
    if known:
        return f"{known[0]}: {known[1]}"
    names = {name for _, c in pod.containers for name in resources.requests(pod, c)}
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
