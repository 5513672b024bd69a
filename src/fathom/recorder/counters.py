"""Which hardware counters a recording samples: those that are remembered to stream on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fathom.errors import FathomError
from fathom.machine import counters_of, why_no_counters
from fathom.machine.nvml import NvmlMissingError, load, reading, visible
from fathom.recorder.plan import Plan

QUALIFY = (
    "it is not known which counters stream here; qualify them with `fathom machine measure --only counters`"
)
SHARED = "process {} uses the GPU too, and counters would mix both; end it"
TOLD = ("groups", "interval_ns", "trigger", "rounds", "steps")
TOO_SHORT = "the program made no step in which it was their turn; let it make more"


class NotSampledError(FathomError):
    """Counters were asked for by name and cannot be sampled, so the program was not started."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"No hardware counters can be sampled, so the program was not started: {why};"
            " without `--depth counters` it is recorded without them."
        )


def met(plan: Plan, machine: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Plan:
    """`plan` on this machine: without counters, and with the reason, where it has none.

    Raises NotSampledError where the depth is `counters`: a recording without them is not what was asked for.
    """
    plan = plan.meeting(*to_sample(machine, environment))
    if plan.depth == "counters" and plan.counters is None:
        raise NotSampledError(plan.why_no_counters or QUALIFY)
    return plan


def unsampled(raw: Path) -> str | None:
    """Why the program that left `raw` has no samples of counters; None where it has."""
    if any(file.stat().st_size for file in raw.glob("samples-*.bin")):
        return None
    return next(_notes(raw), TOO_SHORT)


def _notes(raw: Path) -> Iterator[str]:
    """What the recorded processes say about counters; torn lines say nothing."""
    for file in sorted(raw.glob("proc-*.jsonl")):
        with file.open(errors="replace") as lines:
            for line in lines:
                said = _record(line) if '"note"' in line else {}
                if (said.get("t"), said.get("what")) == ("note", "counters") and said.get("text"):
                    yield str(said["text"])


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
