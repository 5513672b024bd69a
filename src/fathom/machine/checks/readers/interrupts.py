"""Which CPUs handle the devices' interrupts, and the state of the fabric's ports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, judged, unfit
from fathom.machine.checks.registry import reader
from fathom.machine.files import NotOfferedError, format_list, parse_list

FAST = re.compile(r"mlx|nvme|ena-|ens|eth|enp|bnxt|ice-|gve|nvidia|irdma|efa")
FEW = 4  # interrupts; one or two may well share a core
PORTS = "sys/class/infiniband/*/ports/*"


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


@reader("kernel.rdma_ports")
def rdma_ports(host: Host, check: Check) -> Iterator[Observation]:
    ports = host.paths(PORTS)
    if not ports:
        raise NotOfferedError("there is no RDMA device")
    for port in ports:
        state = host.text(f"{port}/state").strip()
        rate = host.text(f"{port}/rate").strip()
        device, number = port.split("/")[3], port.split("/")[5]
        yield judged(
            "ACTIVE" in state, f"{state or 'no state'}, {rate or 'no rate'}", f"{device} port {number}"
        )
