"""The machine with its ceilings and failed checks; the recording's integrity, and what was not analysed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from fathom.machine import from_machine
from fathom.machine.checks import recalled
from fathom.machine.model import Gpu, Machine
from fathom.report import units
from fathom.report.machine.ceilings import value
from fathom.report.page.recording import Recording, Section
from fathom.report.screen import grouped
from fathom.report.sections import FINDING


def section(recording: Recording) -> Section | None:
    """Return host, GPUs, versions, ceilings and failed checks; None if the machine is unknown."""
    machine = recording.machine
    if not machine:
        return None
    results = recalled(machine)
    failed = [result for result in results if result.status == "fail"]
    content = {
        "host": _host(machine),
        "gpus": _gpus(machine.get("gpus") or []),
        "ceilings": [_ceiling(ceiling) for ceiling in from_machine(machine)],
        "failed": failed,
        "checked": len(results),
        "versions": recording.examination.sounding.versions,
    }
    return Section("machine", "Machine", content)


def _host(machine: Machine) -> list[tuple[str, str]]:
    host = machine.get("host") or {}
    cpu = host.get("cpu") or {}
    facts = {
        "processor": cpu.get("model"),
        "cores": cpu.get("usable_cores"),
        "memory": units.memory(host["memory_bytes"]) if host.get("memory_bytes") else None,
        "system": host.get("os"),
        "kernel": host.get("kernel"),
        "container": host.get("container"),
    }
    return [(key, str(value)) for key, value in facts.items() if value]


def _gpus(gpus: Iterable[Gpu]) -> list[list[tuple[str, str]]]:
    """Return the facts of each kind of GPU, with their number."""
    counts = Counter(tuple(_gpu(gpu)) for gpu in gpus)
    return [
        [("GPU", name if count == 1 else f"{count} × {name}"), *facts]
        for ((_, name), *facts), count in counts.items()
    ]


def _gpu(gpu: Gpu) -> Iterator[tuple[str, str]]:
    yield "GPU", str(gpu.get("name") or units.MISSING)
    facts = {
        "memory": units.memory(gpu["memory_bytes"]) if gpu.get("memory_bytes") else None,
        "SM clock": f"{gpu['sm_clock_max_mhz']} MHz at most" if gpu.get("sm_clock_max_mhz") else None,
        "power limit": f"{gpu['power_limit_w']:.0f} W" if gpu.get("power_limit_w") else None,
        "multiprocessors": gpu.get("multiprocessors"),
    }
    yield from ((key, str(value)) for key, value in facts.items() if value)


def _ceiling(ceiling: Any) -> dict[str, str]:
    measured = value(ceiling.value, ceiling.unit)
    return {"id": ceiling.id, "value": measured, "flags": "; ".join(ceiling.flags)}


def integrity(recording: Recording) -> Section:
    """Return every problem of the recording, and every analysis that was left out with its reason."""
    result = recording.examination
    reasons = grouped((entry.why, entry.what) for entry in result.abstained)
    skipped = [(why, *_divided(what)) for why, what in reasons.items()]
    content = {"ok": result.integrity.ok, "problems": result.integrity.problems, "skipped": skipped}
    return Section("integrity", "Integrity, and what was not analysed", content, brief="Integrity")


def _divided(what: list[str]) -> tuple[list[str], list[str]]:
    """Return the analyses and the checks among what was left out, each once."""
    names = dict.fromkeys(what)
    checks = [name.removeprefix(FINDING) for name in names if name.startswith(FINDING)]
    return [name for name in names if not name.startswith(FINDING)], checks
