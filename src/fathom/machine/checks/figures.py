"""What the fix of a pod is filled with: figures of its own manifest; `<NAME>` where only a person knows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from fathom.machine.checks import resources
from fathom.machine.checks.manifest import Pod, mapping

MODEL = re.compile(r".*(gpu|accelerator|instance-type).*", re.I)  # labels of nodes that tell a GPU's model
PRODUCT = {"amd.com/gpu": "amd.com/gpu.product-name"}  # label of the vendor's own discovery, by resource
NVIDIA_PRODUCT = "nvidia.com/gpu.product"
NPROC = re.compile(r"--nproc[-_]per[-_]node[= ]+([0-9]{1,4})\b")
SIZES = (("Gi", 1 << 30), ("Mi", 1 << 20))
Container = dict[str, Any]


def cpus(pod: Pod, container: Container) -> str:
    """The container's own CPUs (the limit, else the request), rounded up to whole ones."""
    count = _own(pod, container, "cpu")[1]
    return "<CPUS>" if count is None else str(max(math.ceil(count), 1))


def memory(pod: Pod, container: Container) -> str:
    """The container's own memory as it is written there (the limit, else the request)."""
    return _own(pod, container, "memory")[0] or "<MEMORY>"


def _own(pod: Pod, container: Container, name: str) -> tuple[str, float | None]:
    for asked in (resources.limits(pod, container), resources.requests(pod, container)):
        amount = resources.quantity(asked.get(name))
        if amount:
            return str(asked[name]), amount
    return "", None


def half(pod: Pod, container: Container) -> str:
    """Half of the container's memory limit, in whole GiB or MiB."""
    limit = resources.quantity(resources.limits(pod, container).get("memory")) or 0
    sizes = (f"{int(limit / 2 / size)}{unit}" for unit, size in SIZES if limit / 2 >= size)
    return next(sizes, "<SIZE>")


def threads(pod: Pod, container: Container) -> dict[str, str]:
    """OpenMP threads a process: the CPUs of the limit over the processes, and how it was reckoned."""
    limit = resources.limits(pod, container).get("cpu")
    count, why = _processes(pod, container)
    each = int((resources.quantity(limit) or 0) / count)
    return {"threads": str(max(each, 1)), "reckoned": f"{limit} CPUs over {why}"}


def _processes(pod: Pod, container: Container) -> tuple[int, str]:
    lines = [v for name in ("command", "args") for v in _words(container.get(name))]
    told = NPROC.findall(" ".join(lines))
    if told and int(told[-1]):
        return int(told[-1]), f"{told[-1]} processes (--nproc-per-node)"
    amounts = resources.matching(resources.requests(pod, container), resources.GPU).values()
    count = int(sum(resources.quantity(amount) or 0 for amount in amounts))
    return (count, f"{count} processes, one a GPU") if count > 1 else (1, "one process")


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def listed(amounts: dict[str, Any], otherwise: str) -> str:
    """Resources as a mapping is written, without its braces."""
    return ", ".join(f"{name}: {amount}" for name, amount in amounts.items()) or otherwise


def rdma(pods: Iterable[Pod]) -> str:
    """The RDMA device that another container of the same manifest asks for."""
    asked = (resources.requests(pod, container) for pod in pods for _, container in pod.containers)
    found = next(filter(None, (resources.matching(each, resources.RDMA) for each in asked)), {})
    return listed(found, "<RDMA_RESOURCE>: <COUNT>")


def product(pod: Pod, pods: Iterable[Pod]) -> str:
    """Label and value that choose the GPU's model: from the manifest, else to be filled in."""
    known = next(filter(None, map(_chosen, (pod, *pods))), None)
    if known:
        return f"{known[0]}: {known[1]}"
    names = {name for _, c in pod.containers for name in resources.requests(pod, c)}
    label = next((label for name, label in PRODUCT.items() if name in names), NVIDIA_PRODUCT)
    return f"{label}: <MODEL>"


def _chosen(pod: Pod) -> tuple[str, str] | None:
    """How a pod's nodes are chosen; of its own labels only those that are nodes' by their names tell that."""
    own = {**pod.annotations, **pod.labels}
    told = {name: own[name] for name in (NVIDIA_PRODUCT, *PRODUCT.values()) if name in own}
    told |= mapping(pod.spec.get("nodeSelector"))
    known = [(n, v) for n, v in told.items() if MODEL.fullmatch(str(n)) and isinstance(v, str) and v]
    return known[-1] if known else None


def huge(pages: dict[str, Any]) -> dict[str, str]:
    """Limits and volumes of the huge pages that a container asks for."""
    kinds = [name.removeprefix("hugepages-") for name in pages]
    volumes = (f"{{name: huge-{kind.lower()}, emptyDir: {{medium: HugePages-{kind}}}}}" for kind in kinds)
    return {"pages": listed(pages, ""), "volumes": ", ".join(volumes)}
