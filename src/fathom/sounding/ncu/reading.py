"""Read the launches of a report with NVIDIA's `ncu_report`, in a separate process because it may crash.

    python -m fathom.sounding.ncu.reading FOLDER REPORT RESULT

Writes the launches to RESULT as JSON, or one line with the error to stderr. For the calls see
https://docs.nvidia.com/nsight-compute/PythonReportInterface (2025.3). Units come from the names of metrics:
asking `ncu_report` for them crashed the process (2025.3.1 on an H200), and without NVIDIA's performance
library it knows few.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fathom.sounding.ncu.launch import Launch
from fathom.sounding.ncu.numbers import base_unit, unit_of
from fathom.sounding.ncu.report import MODULE, NOT_LOADED, UNREADABLE
from fathom.sounding.ncu.spots import spots_of


def main() -> int:
    """Read the report given on the command line, and return the exit status."""
    folder, report, result = sys.argv[1:]
    faulthandler.enable()
    sys.path.insert(0, folder)
    try:
        reader = importlib.import_module(MODULE)
    except Exception as error:
        return _failed(NOT_LOADED, f"{type(error).__name__}: {_first(error)}")
    try:
        context = reader.load_report(report)
        launches = [msgspec.to_builtins(_launch(action)) for action in _kernels(context)]
        text = json.dumps(launches, ensure_ascii=False)
    except Exception as error:
        return _failed(UNREADABLE, _first(error))
    Path(result).write_bytes(text.encode("utf-8", "replace"))  # sources may not be UTF-8
    return 0


def _failed(status: int, why: str) -> int:
    sys.stderr.write(why[:120] + "\n")
    return status


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _kernels(context: Any) -> Iterator[Any]:
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for place in range(part.num_actions()):
            action = part.action_by_idx(place)
            kernel = getattr(action, "WorkloadType_KERNEL", None)
            if kernel is None or not hasattr(action, "workload_type") or action.workload_type() == kernel:
                yield action


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
        scale, launch.units[name] = base_unit(unit_of(name))
        launch.values[name] = float(value) * scale
    else:
        launch.absent.add(name)


def _dims(launch: Launch, what: str) -> str | None:
    sizes = [launch.values.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    return "x".join(str(int(size)) for size in sizes if size is not None) or None


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # skip the library's exit handlers
