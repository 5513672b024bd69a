"""The machine's inventory as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.machine.model import Adapter, Cache, Cpu, Disk, Filesystem, Interface, Kubernetes, Machine
from fathom.report import units
from fathom.report.machine import gpus
from fathom.report.machine.words import block, known, labelled, size, wrapped
from fathom.report.screen import joined

_SOFTWARE = (
    *("driver {driver}", "CUDA of the driver {cuda_driver}", "toolkit {cuda_toolkit}", "torch's CUDA {cuda}"),
    *("cuDNN {cudnn}", "NCCL {nccl}", "torch {torch}", "Triton {triton}", "Python {python}"),
)
_LIMITS = (
    "{cores:g} cores",
    "{memory_bytes:size} of memory",
    "{pids} processes",
    "/dev/shm {shm_bytes:size}",
)
_INSTRUCTIONS = (("amx_", "AMX"), ("avx512", "AVX-512"), ("avx2", "AVX2"), ("sve2", "SVE2"), ("sve", "SVE"))


def heading(machine: Machine, cells: int) -> Iterator[Text]:
    """Yield the machine's name, then product, system and container."""
    host = machine["host"]
    yield Text(str(host.get("hostname") or "this machine"), "bold")
    inside = [host.get("container"), "a virtual machine" if host.get("virtual_machine") else None]
    within = " in ".join(word for word in inside if word)
    kernel = f"kernel {host.get('kernel')}" if host.get("kernel") else None
    fingerprint = f"fingerprint {machine.get('fingerprint')}"
    words = joined(host.get("product"), host.get("os"), kernel, within, fingerprint)
    yield from (Text(line, "dim") for line in wrapped(words, cells))


def body(machine: Machine, cells: int) -> Iterator[Text]:
    """Yield hardware, then software, then limits."""
    host = machine["host"]
    yield from gpus.lines(machine, cells)
    yield from _cpu(host.get("cpu") or {}, cells)
    yield from _numa(machine, cells)
    yield from labelled("memory", size(host.get("memory_bytes")), cells)
    yield from block("disks", map(_disk, host.get("disks") or []))
    yield from block("data", map(_filesystem, host.get("filesystems") or []))
    yield from block("network", map(_interface, host.get("network") or []))
    yield from block("rdma", map(_adapter, host.get("rdma") or []))
    yield from labelled("software", known(machine.get("versions") or {}, *_SOFTWARE), cells)
    yield from labelled("limits", known(host.get("limits") or {}, *_LIMITS), cells)
    yield from labelled("pod", _pod(host.get("kubernetes")), cells)


def _cpu(cpu: Cpu, cells: int) -> Iterator[Text]:
    yield from block("cpu", [Text(str(cpu.get("model") or "unknown"))])
    clock = cpu.get("clock_max_mhz") or cpu.get("clock_nominal_mhz")
    usable, logical = cpu.get("usable_cores"), cpu.get("logical_cores")
    counts = joined(
        _count(cpu.get("sockets"), "socket"),
        _count(cpu.get("physical_cores"), "core"),
        _count(logical, "thread"),
        f"{usable} of them usable" if usable and usable != logical else None,
        f"{clock / 1000:.2f} GHz" if clock else None,
        _instructions(cpu.get("features") or []),
    )
    yield from labelled("", counts, cells)
    yield from labelled("", joined(*map(_cache, cpu.get("caches") or [])), cells, "dim")


def _count(number: int | None, what: str) -> str | None:
    return None if number is None else f"{number} {what}{'' if number == 1 else 's'}"


def _instructions(features: list[str]) -> str | None:
    names = [name for flag, name in _INSTRUCTIONS if any(f.startswith(flag) for f in features)]
    bf16 = any(f.endswith("bf16") for f in features)
    wide = [name for name in names if not (name == "AVX2" and "AVX-512" in names)]
    return ", ".join([*wide, *(["bf16"] if bf16 else [])]) or None


def _cache(cache: Cache) -> str:
    shared = cache.get("shared_by") or 1
    return f"{cache['name']} {size(cache.get('size_bytes'))}" + (f" by {shared}" if shared > 1 else "")


def _numa(machine: Machine, cells: int) -> Iterator[Text]:
    """Yield one line per node with its devices; nothing for a machine with a single node."""
    nodes = machine["host"].get("numa") or []
    if len(nodes) < 2:
        return
    for number, node in enumerate(nodes):
        near = joined(
            f"cpus {node['cpus'] or 'none'}",
            size(node.get("memory_bytes")),
            f"distances {' '.join(map(str, node['distances']))}" if node.get("distances") else None,
            " ".join(_near(machine, node["node"])),
        )
        yield from labelled("numa" if number == 0 else "", f"node {node['node']}: {near}", cells)


def _near(machine: Machine, node: int) -> Iterator[str]:
    """Return the names of a node's GPUs and network devices."""
    yield from (f"GPU{gpu['index']}" for gpu in machine["gpus"] if gpu.get("numa_node") == node)
    host = machine["host"]
    for part in (*(host.get("network") or []), *(host.get("rdma") or [])):
        if part.get("numa_node") == node:
            yield part["name"]


def _disk(disk: Disk) -> Text:
    size = units.scaled(disk.get("size_bytes"), "B")
    return Text(f"{disk['name']:<12}{disk.get('kind') or 'unknown':<9}{size:>8}  {disk.get('model') or ''}")


def _filesystem(place: Filesystem) -> Text:
    on = place.get("disk") or place.get("source")
    return Text(f"{place['path']} is {place['type']} on {on}")


def _interface(interface: Interface) -> Text:
    speed = interface.get("speed_mbps")
    rate = f"{speed / 1000:g} Gb/s" if speed else "speed unknown"
    return Text(f"{interface['name']:<12}{joined(rate, known(interface, '{state}', '{driver}'))}")


def _adapter(adapter: Adapter) -> Text:
    template = "{link_layer}", "{rate_gbps:g} Gb/s", "{state}"
    ports = (known(port, *template) for port in adapter.get("ports") or [])
    return Text(f"{adapter['name']:<12}{joined(*ports, adapter.get('driver'))}")


def _pod(pod: Kubernetes | None) -> str:
    if not pod:
        return ""
    return joined(str(pod.get("pod") or "name unknown"), known(pod, "namespace {namespace}", "node {node}"))
