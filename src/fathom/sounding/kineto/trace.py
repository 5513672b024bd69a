"""One Kineto trace as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from fathom.errors import BadInputError
from fathom.machine.model import Gpu
from fathom.sounding.events import integrity
from fathom.sounding.events.steps import marks, profiler_steps
from fathom.sounding.events.trace import Origin, Trace, listed_gpu
from fathom.sounding.kineto.columns import TraceColumns
from fathom.sounding.kineto.device import device_table, memory_table
from fathom.sounding.kineto.host import host_tables
from fathom.sounding.kineto.stream import collected
from fathom.sounding.manifest import TRACED, Problem
from fathom.sounding.schema import conform


class NoWorkError(BadInputError):
    """The trace has neither operators nor device work."""


class NothingReadError(NoWorkError):
    """The trace has no events of the kinds that torch.profiler records."""


def read_trace(path: str | Path, *, phase: str = "timeline", burst: int = 0) -> Trace:
    """Read a Kineto trace (.json or .json.gz, of any size); `phase` and `burst` become columns of the tables.

    Times are exact nanoseconds. Python frames become module and source of ops, not ops. Damaged events are
    left out and listed in `problems`. Raises BadInputError if the file is not a trace or cannot be read
    completely.
    """
    columns, keys = collected(Path(path), TraceColumns)
    problems: list[Problem] = []
    base = _base_ns(keys)
    host = host_tables(columns, base, burst, problems)
    kernels = device_table(columns, base, problems)
    tables = {"ops": host.ops, "launches": host.launches, "kernels": kernels}
    if not len(host.ops) and not len(kernels):
        kind = NoWorkError if len(host.launches) else NothingReadError
        raise kind(
            f"{path} cannot be imported: it has neither operators nor device work; export it from"
            " torch.profiler with the activities CPU and CUDA."
        )
    steps = profiler_steps(host.notes, phase, burst)
    integrity.unread(columns.phases, columns.unread, problems)
    integrity.check(kernels, host.launches, problems)
    integrity.steps_in_order(steps, problems)
    integrity.silence([host.ops.filter(pl.col("kind") == "op"), host.launches, kernels], problems)
    integrity.lost(keys, problems)
    labels = {"phase": pl.lit(phase), "burst": pl.lit(burst, pl.Int32)}
    return Trace(
        {name: conform(name, frame.with_columns(**labels)) for name, frame in tables.items()},
        _origin(keys, kernels, columns.pid),
        problems,
        marks(host.notes),
        steps,
        memory_table(columns, base, phase, host.ops),
        facts={TRACED: columns.python_calls} if columns.python_calls else {},
        stacks=conform("stacks", host.stacks.with_columns(**labels)),
    )


def _base_ns(keys: dict[str, object]) -> int:
    """Return the zero of the trace's times, in ns since the epoch."""
    base = keys.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and 0 <= base < 2**61 else 0


def _origin(keys: dict[str, object], kernels: pl.DataFrame, pid: int | None) -> Origin:
    distributed = keys.get("distributedInfo")
    job: dict[str, object] = distributed if isinstance(distributed, dict) else {}
    listed = keys.get("deviceProperties")
    described = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    devices = [device for device in described if _count(device.get("id")) is not None]
    used = kernels["device"].drop_nulls().unique().sort().to_list()
    if len(devices) == 1 and len(used) == 1:  # a driver may number the only device in another way
        devices = [{**devices[0], "id": used[0]}]
    names = {device.get("id"): str(device.get("name", "")) for device in devices}
    versions = {
        key.removesuffix("_version"): str(value) for key, value in keys.items() if key.endswith("_version")
    }
    if "nccl_version" in job:
        versions["nccl"] = str(job["nccl_version"])
    return Origin(
        pid=pid,
        rank=_count(job.get("rank")),
        world=_count(job.get("world_size")),
        host=host if isinstance(host := keys.get("host_name"), str) else None,
        devices={device: names.get(device, "") for device in used},
        gpus=[_gpu(device) for device in devices if device.get("id") in used],
        versions=versions,
    )


def _gpu(properties: dict[str, object]) -> Gpu:
    names = ("computeMajor", "computeMinor", "numSms", "totalGlobalMem")
    counts = (_count(properties.get(name)) for name in names)
    return listed_gpu(_count(properties["id"]) or 0, str(properties.get("name", "")), *counts)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
