"""`.ncu-rep` through NVIDIA's own reader, `ncu_report`, which lies beside an installed Nsight Compute.

The calls are those of https://docs.nvidia.com/nsight-compute/PythonReportInterface (2025.3).
"""

from __future__ import annotations

import importlib
import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.sounding.ncu.launch import Launch
from fathom.sounding.ncu.lines import bad
from fathom.sounding.ncu.spots import spots_of
from fathom.sounding.ncu.units import base_unit

VARIABLE = "FATHOM_NCU"  # the ncu program, or the folder that Nsight Compute is installed in
_READER, _MODULE = Path("extras") / "python", "ncu_report.py"
_INSTALLED = ("usr/local/cuda*/nsight-compute*", "opt/nvidia/nsight-compute/*", "usr/lib/nsight-compute")


def read_report(path: Path, ncu: Path | None = None) -> list[Launch]:
    """The launches in a report. Raises BadInputError without a reader, and where it cannot be read."""
    reader = find_reader(path, ncu)
    try:
        context = reader.load_report(str(path))
        return [_launch(action) for action in _kernels(context)]
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise bad(path, f"Nsight Compute's reader cannot read it ({first[:120]}); profile again") from None


def _kernels(context: Any) -> Iterator[Any]:
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for place in range(part.num_actions()):
            action = part.action_by_idx(place)
            kernel = getattr(action, "WorkloadType_KERNEL", None)
            if kernel is None or not hasattr(action, "workload_type") or action.workload_type() == kernel:
                yield action


def find_reader(path: Path, ncu: Path | None = None) -> Any:
    """The module `ncu_report`. Raises BadInputError that says what to do without it."""
    for folder in reader_folders(ncu):
        if (folder / _MODULE).is_file():
            return _imported(path, folder)
    raise bad(
        path,
        f"reading it takes ncu_report.py of an installed Nsight Compute, which was not found; name its ncu "
        f"with {VARIABLE}, or export it where ncu is: ncu --import {path.name} --page raw --csv > "
        f"{path.stem}.csv",
    )


def has_reader(ncu: Path | None = None) -> bool:
    """Whether NVIDIA's reader is anywhere to be found."""
    return any((folder / _MODULE).is_file() for folder in reader_folders(ncu))


def reader_folders(ncu: Path | None = None, root: Path = Path("/")) -> Iterator[Path]:
    """Where the reader may lie: beside the ncu that is named, or on PATH, or where installers put it."""
    named = ncu or os.environ.get(VARIABLE)
    given = [Path(named)] if named else []
    found = [Path(program)] if (program := shutil.which("ncu")) else []
    for start in [*given, *found]:
        for place in (start, *start.resolve().parents[:4]):
            yield place / _READER
            yield from sorted(place.glob(f"nsight-compute*/{_READER}"), reverse=True)
    yield from (Path(entry) for entry in sys.path if entry)
    for pattern in _INSTALLED:
        yield from sorted(root.glob(f"{pattern}/{_READER}"), reverse=True)


def _imported(path: Path, folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("ncu_report")
    except Exception as error:
        raise BadInputError(
            f"{path} cannot be imported: {folder / _MODULE} does not load "
            f"({type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''})."
        ) from None
    finally:
        sys.path.remove(str(folder))


def _launch(action: Any) -> Launch:
    launch = Launch(name=str(action.name(getattr(action, "NameBase_DEMANGLED", 0))))
    for name in action.metric_names():
        _add(launch, name, action.metric_by_name(name))
    launch.device = int(launch.values.get("launch__device_id", 0))
    stream = launch.values.get("launch__stream_id")
    launch.stream = None if stream is None else int(stream)
    launch.grid, launch.block = _dims(launch, "grid"), _dims(launch, "block")
    launch.spots = spots_of(action)
    return launch


def _add(launch: Launch, name: str, metric: Any) -> None:
    value = None if metric is None else metric.value()
    if isinstance(value, str):
        launch.texts[name] = value
    elif isinstance(value, int | float) and math.isfinite(value):
        scale, launch.units[name] = base_unit(metric.unit() or "")
        launch.values[name] = float(value) * scale
    else:
        launch.absent.add(name)


def _dims(launch: Launch, what: str) -> str | None:
    sizes = [launch.values.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    return "x".join(str(int(size)) for size in sizes if size is not None) or None
