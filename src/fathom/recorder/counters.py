"""Which hardware counters a recording samples: those that are remembered to stream on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from fathom.machine import counters_of, why_no_counters
from fathom.machine.nvml import NvmlMissingError, load, reading, visible

QUALIFY = (
    "it is not known which counters stream here; qualify them with `fathom machine measure --only counters`"
)
SHARED = "process {} uses the GPU too, and counters would mix both; end it"
TOLD = ("groups", "interval_ns", "trigger", "rounds", "steps")


def to_sample(
    machine: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    open_nvml: Callable[[], Any] = load,
) -> tuple[dict[str, Any] | None, str | None]:
    """(what the probe is to sample, None), or (None, why nothing and what to do)."""
    if why := why_no_counters(machine):
        return None, why
    if others := _others(environment, open_nvml):
        return None, SHARED.format(", ".join(map(str, others)))
    known = counters_of(machine)
    if known is None:
        return None, machine.get("why_no_counters") or QUALIFY
    return {name: known[name] for name in TOLD if name in known}, None


def _others(environment: Mapping[str, str], open_nvml: Callable[[], Any]) -> list[int]:
    """Ids of other processes that compute on a visible GPU, as far as the driver tells."""
    try:
        nvml = open_nvml()
        handles = visible(nvml, environment)
    except (NvmlMissingError, OSError):
        return []
    found = [reading(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or [] for handle in handles]
    return sorted({int(process.pid) for listed in found for process in listed} - {os.getpid()})
