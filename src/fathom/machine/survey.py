"""The inventory of this machine, which every sounding stores as `machine.json`, and its measured ceilings."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from fathom.machine import cgroup, cpu, disks, gpus, libraries, network, surroundings
from fathom.machine.ceilings import from_machine, missing_from
from fathom.machine.files import ROOT, text
from fathom.machine.model import Devices, Host, Machine
from fathom.machine.store import MachineFileError, place, remembered
from fathom.version import VERSION

_REMEMBERED = ("ceilings", "missing", "counters", "measured_ns", "tool")


def read_host(root: Path = ROOT) -> Host:
    """Describe processor, memory, NUMA, disks, network, system and containers; tests pass a `root`."""
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
    """Return the installed memory in bytes, or the cgroup's limit if that is smaller; None if unknown."""
    total = re.search(r"^MemTotal:\s+(\d{1,20}) kB", text(root / "proc/meminfo"), re.M)
    installed = int(total.group(1)) * 1024 if total else None
    return min((size for size in (installed, cgroup.memory(root)) if size is not None), default=None)


def os_name(root: Path = ROOT) -> str:
    """Return the distribution's name, or the platform's if it has none."""
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(root / "etc/os-release"), re.M)
    return name.group(1) if name else platform.platform()


def free_bytes(folder: Path) -> int | None:
    """Return the free space for `folder`, or for its nearest existing ancestor, in bytes; None if unknown."""
    for ancestor in (folder, *folder.absolute().parents):
        if ancestor.exists():
            return shutil.disk_usage(ancestor).free
    return None


def inventory(
    read_gpus: Callable[[], Devices] = gpus.read,
    read_host: Callable[[], Host] = read_host,
    read_libraries: Callable[[], dict[str, str]] = libraries.versions,
) -> Machine:
    """Return GPUs, links, processor, memory, system and versions; works without a GPU."""
    devices = read_gpus()
    versions = {
        "fathom": VERSION,
        "driver": devices["driver"],
        "cuda_driver": devices["cuda_driver"],
        "python": platform.python_version(),
        **read_libraries(),
    }
    machine: Machine = {
        "host": read_host(),
        "gpus": devices["gpus"],
        "links": devices.get("links") or {"names": [], "matrix": []},
        "why_no_gpu": devices["why_no_gpu"],
        "versions": {name: version for name, version in versions.items() if version},
    }
    machine["fingerprint"] = fingerprint(machine)
    return machine


def fingerprint(machine: Machine) -> str:
    """Return sixteen hex digits that change whenever a measured ceiling may no longer hold."""
    cpu = machine["host"]["cpu"]
    chips = [[g["uuid"], g["name"], g["memory_bytes"], g["power_limit_w"]] for g in machine["gpus"]]
    parts = {
        "cpu": [cpu["model"], cpu["logical_cores"], cpu["numa_nodes"]],
        "driver": machine["versions"].get("driver"),
        "gpus": sorted(chips, key=lambda chip: str(chip[0])),  # a reboot may renumber them
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def known_machine(
    read: Callable[[], Machine] = inventory,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Machine:
    """Return the current inventory with the stored ceilings and counters of this machine.

    If the stored file is damaged, `say` gets the message and the inventory comes without them.
    """
    machine = read()
    try:
        before = stored_machine(machine["fingerprint"], folder)
    except MachineFileError as error:
        say(str(error))
        before = {}
    kept = {name: value for name, value in before.items() if name in _REMEMBERED}
    return cast(Machine, {**machine, **kept})


def stored_machine(fingerprint: str, folder: Path | None = None) -> Machine:
    """Return the stored machine file, or {} if there is none. Raises MachineFileError if it is damaged."""
    before = remembered(fingerprint, folder)
    if before is None:
        return {}
    for read in (from_machine, missing_from):
        read(before, str(place(fingerprint, folder)))
    return before


def described(folders: Sequence[Path] = (), machine: Machine | None = None) -> Machine:
    """Describe this machine and the file systems of `folders`; `abstained` has reasons for damaged data."""
    present: Machine = inventory() if machine is None else {**machine}
    given = filter(None, map(disks.filesystem, folders))
    present["host"]["filesystems"] = [*(present["host"]["filesystems"] or []), *given]
    why: list[str] = []
    known = known_machine(lambda: present, say=why.append)
    return known | {"abstained": [{"what": "ceilings", "why": reason} for reason in why]}


def with_datasheet(machine: Machine) -> Machine:
    """Add the published figure to each ceiling as `datasheet`, or None if there is none."""
    if "ceilings" not in machine:
        return machine
    from fathom.machine.datasheet import beside, find, find_host  # imported late, because it reads YAML

    sheets = {gpu["index"]: find(gpu) for gpu in machine["gpus"]} | {None: find_host(machine["host"])}
    figures = [beside(c, sheets.get(c.device)) for c in from_machine(machine)]
    pairs = zip(machine["ceilings"], figures, strict=True)
    return {**machine, "ceilings": [{**record, "datasheet": figure} for record, figure in pairs]}
