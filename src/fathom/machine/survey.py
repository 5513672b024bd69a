"""The inventory of this machine, which every sounding keeps as `machine.json`."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from typing import Any

from fathom.machine import gpus, libraries, system
from fathom.version import VERSION


def inventory(
    read_gpus: Callable[[], dict[str, Any]] = gpus.read,
    read_host: Callable[[], dict[str, Any]] = system.read,
    read_libraries: Callable[[], dict[str, str]] = libraries.versions,
) -> dict[str, Any]:
    """Return GPUs, links, processor, memory, system and versions as a JSON-able dict; works without a GPU."""
    devices = read_gpus()
    versions = {
        "fathom": VERSION,
        "driver": devices["driver"],
        "cuda_driver": devices["cuda_driver"],
        "python": platform.python_version(),
        **read_libraries(),
    }
    machine = {
        "host": read_host(),
        "gpus": devices["gpus"],
        "links": devices.get("links") or {"names": [], "matrix": []},
        "why_no_gpu": devices["why_no_gpu"],
        "versions": {name: version for name, version in versions.items() if version},
    }
    machine["fingerprint"] = fingerprint(machine)
    return machine


def fingerprint(machine: dict[str, Any]) -> str:
    """Return sixteen hex digits that change whenever a measured ceiling may no longer hold."""
    cpu = machine["host"]["cpu"]
    chips = [[g["uuid"], g["name"], g["memory_bytes"], g["power_limit_w"]] for g in machine["gpus"]]
    parts = {
        "cpu": [cpu["model"], cpu["logical_cores"], cpu["numa_nodes"]],
        "driver": machine["versions"].get("driver"),
        "gpus": sorted(chips, key=lambda chip: str(chip[0])),  # a reboot may renumber them
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
