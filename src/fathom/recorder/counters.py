"""Choose the hardware counters to sample: those qualified on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from fathom.errors import FathomError
from fathom.machine import counters_of, why_no_counters
from fathom.machine.model import Machine
from fathom.machine.nvml import NvmlMissingError, load, other_processes, visible
from fathom.recorder.plan import CountersPlan, Plan

QUALIFY = "no counters have been qualified here; run `fathom machine measure --only counters`"
SHARED = "process {} also uses the GPU, so counters would mix both; end it"
PLANNED = ("groups", "interval_ns", "trigger", "rounds", "steps")
TOO_SHORT = "the program ended before the steps reserved for counters; let it run more steps"


class NotSampledError(FathomError):
    """Counters were requested by name but cannot be sampled, so the program was not started."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Hardware counters cannot be sampled, so the program was not started: {why};"
            " omit `--depth counters` to record without them."
        )


def met(plan: Plan, machine: Machine, environment: Mapping[str, str] = os.environ) -> Plan:
    """Return `plan` with the counters that this machine can sample, or with the reason why it cannot.

    Raises NotSampledError if the depth is `counters`, because the user asked for them.
    """
    plan = plan.meeting(*to_sample(machine, environment))
    if plan.depth == "counters" and plan.counters is None:
        raise NotSampledError(plan.why_no_counters or QUALIFY)
    return plan


def unsampled(raw: Path) -> str | None:
    """Return why the records in `raw` hold no counter samples; None if they do."""
    if any(file.stat().st_size for file in raw.glob("samples-*.bin")):
        return None
    return next(_notes(raw), TOO_SHORT)


def _notes(raw: Path) -> Iterator[str]:
    """Yield the notes of the recorded processes about counters, skipping truncated lines."""
    for file in sorted(raw.glob("proc-*.jsonl")):
        with file.open(errors="replace") as lines:
            for line in lines:
                said = _record(line) if '"note"' in line else {}
                if (said.get("t"), said.get("what")) == ("note", "counters") and said.get("text"):
                    yield str(said["text"])


def _record(line: str) -> dict[str, object]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def to_sample(
    machine: Machine, environment: Mapping[str, str] = os.environ, open_nvml: Callable[[], Any] = load
) -> tuple[CountersPlan | None, str | None]:
    """Return (the counters for the probe, None), or (None, why there are none and what to do)."""
    if why := why_no_counters(machine):
        return None, why
    if others := _others(environment, open_nvml):
        return None, SHARED.format(", ".join(map(str, others)))
    known = counters_of(machine)
    if known is None:
        return None, machine.get("why_no_counters") or QUALIFY
    return cast(CountersPlan, {name: value for name, value in known.items() if name in PLANNED}), None


def _others(environment: Mapping[str, str], open_nvml: Callable[[], Any]) -> list[int]:
    """Return the ids of other compute processes on visible GPUs, as far as the driver reports them."""
    try:
        nvml = open_nvml()
        handles = visible(nvml, environment)
    except (NvmlMissingError, OSError):
        return []
    return other_processes(nvml, handles)
