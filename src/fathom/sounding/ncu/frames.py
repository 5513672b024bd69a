"""Build the tables `counters` and `kernels` from profiled launches."""

from __future__ import annotations

import re
from collections import defaultdict
from math import sqrt
from operator import mul

import polars as pl

from fathom.sounding.families import with_families
from fathom.sounding.ncu.launch import DURATION, Launch
from fathom.sounding.schema import conform

SOURCE = "ncu"
NO_STREAM = -1  # the file does not name it
# Metrics that describe the device or name the launch are not counters.
_NO_COUNTER = re.compile(
    r"(?:device__attribute|c2clink__|nvlink__|numa__|profiler__|launch__function_pcs"
    r"|launch__(?:context|device|stream|graph\w*)_id|launch__(?:grid|block)_dim)"
)
_OVER_TIME = re.compile(r"\.(?:pct|ratio|pct_of_peak_\w+|per_second|per_cycle_\w+)$")


def families(launches: list[Launch]) -> list[str]:
    """Return the kernel family of each launch."""
    columns = {"name": pl.String, "grid": pl.String, "block": pl.String}
    rows = [(launch.name, launch.grid, launch.block) for launch in launches]
    return with_families(pl.DataFrame(rows, schema=columns, orient="row"))["family"].to_list()


def counters(launches: list[Launch], named: list[str]) -> pl.DataFrame:
    """Return the `counters` table: mean, launches and standard error of every metric by device and family.

    The error is null if only one launch was profiled, or if the file has only a mean.
    """
    groups: defaultdict[tuple[int, str, str], list[tuple[float, Launch]]] = defaultdict(list)
    for launch, family in zip(launches, named, strict=True):
        for name, value in launch.values.items():
            if not _NO_COUNTER.match(name):
                groups[launch.device, family, name].append((value, launch))
    return conform("counters", pl.DataFrame([_row(*key, seen) for key, seen in sorted(groups.items())]))


def _row(device: int, family: str, counter: str, seen: list[tuple[float, Launch]]) -> dict[str, object]:
    values, weights = [value for value, _ in seen], _weights(counter, [launch for _, launch in seen])
    mean = sum(map(mul, values, weights)) / sum(weights)
    single = all(launch.count == 1 for _, launch in seen)
    scatter = [(weight * (value - mean)) ** 2 for value, weight in zip(values, weights, strict=True)]
    # For equal weights this is the standard deviation over the root of the number of launches.
    error = sqrt(sum(scatter) * len(seen) / (len(seen) - 1)) / sum(weights) if len(seen) > 1 else None
    return {
        "device": device,
        "family": family,
        "counter": counter,
        "value": mean,
        "unit": seen[0][1].units[counter],
        "samples": sum(launch.count for _, launch in seen),
        "error": error if single else None,
        "source": SOURCE,
    }


def _weights(counter: str, launches: list[Launch]) -> list[float]:
    """Return the weight of each launch; for shares and rates, which are means over time, its duration."""
    counts = [float(launch.count) for launch in launches]
    lengths = [launch.values.get(DURATION, 0.0) for launch in launches]
    if not _OVER_TIME.search(counter) or not all(lengths):
        return counts
    return list(map(mul, counts, lengths))


def kernels(launches: list[Launch], named: list[str]) -> pl.DataFrame:
    """Return the `kernels` table, with launches one after the other from 0, as ncu records only durations.

    Their phase is `counters`, which no analysis of time reads: ncu serialises and by default flushes caches,
    so its durations are not part of a step.
    """
    rows, now = [], 0
    for launch, family in zip(launches, named, strict=True):
        length = round(1e9 * launch.values.get(DURATION, 0.0))
        rows.append({**_kernel(launch), "family": family, "start_ns": now, "end_ns": now + length})
        now += length
    return conform("kernels", pl.DataFrame(rows, infer_schema_length=None))


def _kernel(launch: Launch) -> dict[str, object]:
    value = launch.values.get
    shared = [value(f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic")]
    return {
        "device": launch.device,
        "stream": NO_STREAM if launch.stream is None else launch.stream,
        "kind": "compute",
        "name": launch.name,
        "grid": launch.grid,
        "block": launch.block,
        "registers": value("launch__registers_per_thread"),
        "shared_bytes": None if None in shared else sum(size for size in shared if size is not None),
        "phase": "counters",
        "burst": 0,
    }
