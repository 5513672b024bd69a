"""A measured machine file as hardware: measured ceilings, and the datasheet where nothing was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fathom.errors import BadInputError
from fathom.machine import Ceiling, datasheet
from fathom.machine import from_machine as ceilings_of
from fathom.machine.model import Gpu, Machine
from fathom.planner.hardware.catalogue import Domain, Hardware, assumed_host, hardware, systems
from fathom.planner.quantity import ASSUMED, MEASURED, Quantity

_MEMORY = ("hbm.read", "hbm.copy", "hbm.triad", "host.read", "host.copy", "host.triad")
_ONLY_CPU = Domain(
    "shared memory",
    0,
    Quantity(1e10, "B/s", ASSUMED, "processes of one host"),
    Quantity(1e-5, "s", ASSUMED, "processes of one host"),
)


def from_machine(machine: Machine, gpu: int | None = 0, name: str = "this machine") -> Hardware:
    """Return the hardware of a machine file: GPU `gpu`, or the processor if it is None or there is no GPU.

    Raises BadInputError if neither a measurement nor a datasheet gives a matrix rate and a memory bandwidth.
    """
    known = ceilings_of(machine)
    gpus = machine.get("gpus") or []
    on_gpu = gpu is not None and bool(gpus)
    base = _datasheet_of(gpus[gpu or 0]) if on_gpu else Hardware(name, "CPU", _host(machine), (_ONLY_CPU,))
    measured = _figures([c for c in known if c.is_bound and (c.device is not None) == on_gpu])
    measured |= _storage(known) | _counted(machine, len(gpus) if on_gpu else 1)
    figures = assumed_host(1) | base.figures | measured
    if "hbm" not in figures or not any(key.startswith("matmul.") for key in figures):
        raise BadInputError(
            f"{name} has no measured matrix rate and memory bandwidth; run `fathom machine measure` on it."
        )
    return replace(base, name=name, figures=figures, fabric=_fabric(base, measured), sheet=base.figures)


def _datasheet_of(gpu: Gpu) -> Hardware:
    """Return the system of the chip; without a datasheet, hardware without figures."""
    sheet = datasheet.find(gpu)
    for system, row in systems().items():
        listed = datasheet.find({"name": row.chip})
        if sheet is not None and listed == sheet and not row.published:
            return hardware(system)
    return Hardware(str(gpu.get("name")), str(gpu.get("name")), {}, (_ONLY_CPU,))


def _host(machine: Machine) -> dict[str, Quantity]:
    host = machine.get("host") or {}
    size = host.get("memory_bytes")
    jitter = Quantity(0.03, "", ASSUMED, "spread of a step on a shared host", 0.0, 0.1)
    figures = {
        "jitter": jitter,
        "launch": Quantity(5e-6, "s", ASSUMED, "dispatch of an operator", 2e-6, 2e-5),
    }
    if size:
        figures["memory"] = Quantity(float(size), "B", MEASURED, "the machine's inventory")
    return figures


def _figures(ceilings: Sequence[Ceiling]) -> dict[str, Quantity]:
    """Return the measured figures by the planner's keys."""
    figures: dict[str, Quantity] = {}
    for ceiling in ceilings:
        key = _key(ceiling.id)
        if key and (key not in figures or ceiling.value > figures[key].value):
            figures[key] = _measured(ceiling)
    return figures


def _storage(ceilings: Sequence[Ceiling]) -> dict[str, Quantity]:
    """Return the bandwidth of the measured disk: in large blocks, and at random, as for small samples."""
    keys = {"disk.read.sequential": "storage", "disk.read.random": "storage.random"}
    return {keys[ceiling.id]: _measured(ceiling) for ceiling in ceilings if ceiling.id in keys}


def _counted(machine: Machine, gpus: int) -> dict[str, Quantity]:
    """Return the GPUs and the usable cores of the host, by the machine's inventory."""
    cpu = (machine.get("host") or {}).get("cpu") or {}
    counts = {"host_gpus": gpus, "cores": cpu.get("usable_cores") or cpu.get("logical_cores")}
    return {
        key: Quantity(float(count), "", MEASURED, "the machine's inventory")
        for key, count in counts.items()
        if count
    }


def _key(ceiling: str) -> str | None:
    if ceiling in _MEMORY:
        return "hbm"
    if ceiling in ("latency.launch", "latency.dispatch"):
        return "launch"
    if ceiling.startswith("collective."):
        return "link"
    if ceiling.endswith(".sustained"):  # the share of peaks that stacks reach has the clock's drop already
        return None
    plain = ceiling.removeprefix("host.")
    return plain if plain.startswith(("matmul.", "vector.", "attention.")) else None


def _measured(ceiling: Ceiling) -> Quantity:
    source = f"{ceiling.id} at {ceiling.at}" if ceiling.at else ceiling.id
    return Quantity(ceiling.value, ceiling.unit, MEASURED, source, ceiling.low, ceiling.high)


def _fabric(base: Hardware, measured: dict[str, Quantity]) -> tuple[Domain, ...]:
    """Return the fabric with the innermost link as measured, if it was."""
    if "link" not in measured or not base.fabric:
        return base.fabric
    return (replace(base.fabric[0], bandwidth=measured["link"]), *base.fabric[1:])
