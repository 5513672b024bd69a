"""Plan what to measure, and on which GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.gauges.catalogue import FULL, GPU, HOST, LINKS, QUICK, scope
from fathom.gauges.job import GaugeJob
from fathom.machine.model import Machine
from fathom.machine.nvml import NvmlMissingError, load, reading, visible


@dataclass(frozen=True)
class MeasurementPlan:
    """The gauges `ids` to run on `machine`, an inventory.

    GPU gauges run on each of `devices`, link gauges between all of `linked`. `data` is a folder on the disk
    to measure. `force` measures even if other processes use the GPUs. `pace` is a factor on the measuring
    time. `why_no_gpu` is the reason if there are no devices.
    """

    machine: Machine
    ids: tuple[str, ...] = QUICK
    devices: tuple[int, ...] = ()
    linked: tuple[int, ...] = ()
    full: bool = False
    data: Path = Path()
    force: bool = False
    pace: float = 1.0
    why_no_gpu: str = "this machine has no GPU"


@dataclass(frozen=True)
class Batch:
    """The job of one measuring process; `device` is the GPU that its ceilings belong to, or None."""

    job: GaugeJob
    device: int | None
    environment: dict[str, str]


def plan(
    machine: Machine,
    *,
    only: Sequence[str] = (),
    full: bool = False,
    gpu: str | None = None,
    data: Path | None = None,
    force: bool = False,
    environment: Mapping[str, str] = os.environ,
    open_nvml: Callable[[], Any] = load,
) -> MeasurementPlan:
    """Return the plan for a command line; `only` are ids or patterns like `hbm.*`, `gpu` an index or `all`.

    Raises BadInputError for ids, devices and folders that do not exist.
    """
    folder = (data or Path()).absolute()
    if not folder.is_dir():
        raise BadInputError(f"{folder} is not a folder; give --data a folder on the disk to measure.")
    seen = seen_devices(environment, open_nvml)
    return MeasurementPlan(
        machine=machine,
        ids=choose(only) if only else FULL if full else QUICK,
        devices=_devices(gpu, seen),
        linked=seen if gpu in (None, "all") else _devices(gpu, seen),
        full=full,
        data=folder,
        force=force,
        why_no_gpu=_why_no_gpu(machine),
    )


def choose(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that match a pattern, in measuring order. Raises BadInputError if a pattern has none."""
    words = [word for pattern in patterns for word in pattern.split(",") if word]
    for word in words:
        if not any(_names(word, known) for known in FULL):
            groups = sorted({known.split(".")[0] for known in FULL})
            raise BadInputError(f"no ceiling is called {word}; their names begin with {', '.join(groups)}.")
    return tuple(known for known in FULL if any(_names(word, known) for word in words))


def _names(word: str, known: str) -> bool:
    return fnmatchcase(known, word) or known.startswith(word + ".")


def seen_devices(environment: Mapping[str, str], open_nvml: Callable[[], Any] = load) -> tuple[int, ...]:
    """Return the inventory indices of the GPUs visible under CUDA_VISIBLE_DEVICES."""
    try:
        nvml = open_nvml()
        handles = visible(nvml, environment)
    except (NvmlMissingError, OSError):
        return ()
    numbers = [reading(nvml.nvmlDeviceGetIndex, handle) for handle in handles]
    return tuple(number for number in numbers if number is not None)


def _devices(gpu: str | None, seen: tuple[int, ...]) -> tuple[int, ...]:
    if gpu is None:
        return seen[:1]
    if gpu == "all":
        return seen
    if gpu.isdigit() and int(gpu) in seen:
        return (int(gpu),)
    known = ", ".join(map(str, seen)) or "none"
    raise BadInputError(f"there is no GPU {gpu} to measure; visible here: {known}.")


def _why_no_gpu(machine: Machine) -> str:
    if machine["gpus"]:
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    return f"there is no GPU ({machine.get('why_no_gpu') or 'the driver lists none'})"


def batches(plan: MeasurementPlan) -> list[Batch]:
    """Return the batches: one process for the host, one per GPU, and one for all GPUs together."""
    by_scope = {kind: tuple(name for name in plan.ids if scope(name) == kind) for kind in (HOST, GPU, LINKS)}
    wanted = [
        (by_scope[HOST], (), None),
        *((by_scope[GPU], (device,), device) for device in plan.devices),
        (by_scope[LINKS], plan.linked if len(plan.linked) > 1 else (), None),
    ]
    return [
        Batch(
            GaugeJob(ids=ids, devices=devices, full=plan.full, data=str(plan.data), pace=plan.pace),
            device,
            _environment(plan, devices),
        )
        for ids, devices, device in wanted
        if ids and (devices or ids == by_scope[HOST])
    ]


def unplaced(plan: MeasurementPlan) -> Iterable[tuple[str, str]]:
    """Yield (id, reason) for each gauge that cannot run because a GPU is missing."""
    for name in plan.ids:
        if scope(name) != HOST and not plan.devices:
            yield name, plan.why_no_gpu
        elif scope(name) == LINKS and len(plan.linked) < 2:
            yield name, "it needs two GPUs, and only one is visible or selected"


def _environment(plan: MeasurementPlan, devices: tuple[int, ...]) -> dict[str, str]:
    """Return variables that show a process only its devices.

    They name UUIDs, because CUDA and the driver number GPUs differently.
    """
    gpus = [gpu for gpu in plan.machine["gpus"] if gpu["index"] in devices]
    if any(gpu.get("mig") for gpu in gpus):
        return {}  # the environment already names the slice's UUID
    order = {gpu["index"]: gpu for gpu in gpus}
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(order[device]["uuid"]) for device in devices)}
