"""Whether this process runs close to its GPUs, and which CPUs handle the devices' interrupts."""

from __future__ import annotations

import re

from fathom.machine.checks.gpu import Gpu, each, gpus, mine
from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, failed, judged, passed, unfit
from fathom.machine.checks.registry import Answer, reader
from fathom.machine.files import NotOfferedError, UnreadableError, format_list, parse_list

FAST = re.compile(r"mlx|nvme|ena-|ens|eth|enp|bnxt|ice-|gve|nvidia|irdma|efa")
FEW = 4  # interrupts; one or two may well share a core


@reader("kernel.numa_binding")
def numa_binding(host: Host, check: Check) -> Observation:
    """Check that the CPUs allowed to this process lie on one node."""
    if len(host.nodes) < 2:
        return unfit("there is one NUMA node")
    own = mine(host) or gpus(host)
    if not host.affinity:
        raise UnreadableError("this system does not report a process's CPUs")
    used = [node for node, cpus in host.nodes.items() if cpus & host.affinity]
    if len(used) == 1:
        return passed(f"bound to NUMA node {used[0]}")
    node = _node(host, own[0])
    blanks = {} if node is None else {"node": str(node)}
    return failed(f"may run on NUMA nodes {format_list(used)}, CPUs {format_list(host.affinity)}", **blanks)


def _node(host: Host, gpu: Gpu) -> int | None:
    """Return the GPU's NUMA node, or None if the firmware does not report it."""
    try:
        node = host.number(f"sys/bus/pci/devices/{gpu.address}/numa_node")
    except (NotOfferedError, UnreadableError):
        return None
    return node if node >= 0 else None


@reader("kernel.gpu_locality")
def gpu_locality(host: Host, check: Check) -> Answer:
    if len(host.nodes) < 2:
        return unfit("there is one NUMA node")

    def look(gpu: Gpu) -> Observation:
        near = parse_list(host.text(f"sys/bus/pci/devices/{gpu.address}/local_cpulist"))
        if not near or not host.affinity:
            raise UnreadableError("the firmware does not report the local CPUs")
        good = bool(near & host.affinity)
        node = _node(host, gpu)
        words = f"local CPUs: {format_list(near)}; this process may use {format_list(host.affinity)}"
        return judged(good, words, **({} if node is None else {"node": str(node)}))

    return each(mine(host), look)


@reader("kernel.irq_affinity")
def irq_affinity(host: Host, check: Check) -> Observation:
    interrupts = re.findall(r"^\s*(\d+):.*?\s(\S+)$", host.text("proc/interrupts"), re.M)
    fast = [number for number, name in interrupts if FAST.search(name.lower())]
    if len(fast) < FEW:
        return unfit(f"fast devices have {len(fast)} interrupts")
    handled = {number: parse_list(host.text(_where(host, number))) for number in fast}
    cpus = frozenset[int]().union(*handled.values())
    words = f"{len(fast)} interrupts of fast devices on CPUs {format_list(cpus)}"
    return judged(len(cpus) > 1, words)


def _where(host: Host, number: str) -> str:
    effective = f"proc/irq/{number}/effective_affinity_list"
    return effective if host.exists(effective) else f"proc/irq/{number}/smp_affinity_list"
