"""Import traces of one job: one rank per process that a file recorded."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fathom.errors import BadInputError
from fathom.machine.model import Gpu
from fathom.sounding.checking import DEVICES
from fathom.sounding.events import Trace
from fathom.sounding.manifest import Manifest, Phase, Rank
from fathom.sounding.missing import note_missing_ranks
from fathom.sounding.reading import read_all
from fathom.sounding.repetition import steps_from_repetition
from fathom.sounding.store import Store, Writer
from fathom.units import NS_PER_S

_IN_A_NAME = re.compile(r"rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
FIRST_TRACES_NS = 1_500_000_000_000_000_000  # July 2017: before the first release of torch.profiler
DAY_NS = int(86_400 * NS_PER_S)
MOST_DAYS = 2  # clocks of machines differ, and ranks may be traced one after another
_VENDORS = {"AMD": r"^hip[A-Z]", "NVIDIA": r"^cu(da)?[A-Z]"}  # runtime calls, by vendor


def import_traces(
    paths: list[Path],
    output: Path,
    *,
    name: str | None = None,
    replace: bool = False,
    step_range: str | None = None,
) -> Store:
    """Make a sounding from traces of profilers or in Chrome's format, or from spans of serving engines.

    Steps are the ranges whose names match `step_range`; by default those marked by the profiler, a serving
    engine, or ranges named like steps; without them, Fathom finds steps by repetition. Raises BadInputError
    if a file is not a trace, files are of different jobs, or no range matches, and then writes nothing.
    """
    if not paths:
        raise BadInputError("No trace was given; give at least one file.")
    writer = Writer(output, replace=replace)
    manifest = Manifest(name=name or paths[0].name.split(".")[0], made_by="import")
    gpus: dict[int, Gpu] = {}
    seen: list[Seen] = []
    try:
        for path, traces in read_all(paths, step_range):
            for trace in traces:
                seen.append(Seen.of(path, trace, _bounds(trace)[0]))
                check_related(seen[0], seen[-1])
                rank = _rank(trace, manifest, path, alone=len(traces) == 1)
                for gpu in _add(writer, manifest, trace, rank):
                    if 0 <= gpu["index"] < DEVICES:
                        gpus.setdefault(gpu["index"], gpu)
    except BaseException:
        writer.discard()
        raise
    note_missing_ranks(manifest)
    manifest.created_ns = _recorded_at(manifest)
    return writer.finish(manifest, {"gpus": [gpus[index] for index in sorted(gpus)]} if gpus else None)


def _recorded_at(manifest: Manifest) -> int:
    """Return the time of the first record in ns, or 0 if the traces count from another zero than 1970."""
    start = min(phase.start_ns for phase in manifest.phases)
    return start if FIRST_TRACES_NS < start < time.time_ns() + DAY_NS else 0


def _add(writer: Writer, manifest: Manifest, trace: Trace, rank: int) -> list[Gpu]:
    """Write the tables of one rank, and return the GPUs that its trace describes."""
    _mark_steps(trace, manifest)
    for table, frame in {
        **trace.tables,
        "steps": trace.steps,
        "memory": trace.memory,
        "samples": trace.samples,
        "stacks": trace.stacks,
    }.items():
        writer.write(rank, table, frame)
    for problem in trace.problems:
        problem.rank = rank
    manifest.problems += trace.problems
    origin = trace.origin
    source = trace.steps["source"][0] if len(trace.steps) else None
    manifest.abstained += [row for row in trace.abstained if row not in manifest.abstained]
    about = Rank(rank, origin.pid, origin.host, origin.world, origin.devices, source, facts=trace.facts)
    manifest.ranks.append(about)
    manifest.phases.append(Phase(rank, "timeline", 0, *_bounds(trace), len(trace.steps)))
    manifest.versions.update(origin.versions)
    return origin.gpus


def _rank(trace: Trace, manifest: Manifest, path: Path, alone: bool) -> int:
    named = _IN_A_NAME.search(path.name) if alone else None
    own = trace.origin.rank
    rank = own if own is not None else int(named[1]) if named else len(manifest.ranks)
    if any(other.rank == rank for other in manifest.ranks):
        raise BadInputError(f"{path} is rank {rank}, like another trace; import them separately.")
    world = trace.origin.world
    if other := next((o.world for o in manifest.ranks if o.world and world and o.world != world), None):
        jobs = f"a job of {world} ranks, another trace of one of {other}"
        raise BadInputError(f"{path} comes from {jobs}; import them separately.")
    return rank


def _mark_steps(trace: Trace, manifest: Manifest) -> None:
    if len(trace.steps) or len(trace.tables.get("requests", ())):
        return
    tables = trace.tables
    trace.steps = steps_from_repetition(tables["kernels"], tables["launches"], tables["ops"])
    if trace.steps.is_empty():
        manifest.abstained.append(
            {"what": "steps", "why": "the trace marks no steps, and its work does not repeat"}
        )


def _bounds(trace: Trace) -> tuple[int, int]:
    """Return the start of the first record and the end of the last, in ns."""
    frames = [frame for frame in trace.tables.values() if len(frame)]
    start = min(int(frame["start_ns"].min()) for frame in frames)  # type: ignore[arg-type]
    end = max(int(frame["end_ns"].max()) for frame in frames)  # type: ignore[arg-type]
    return start, end


class Seen(NamedTuple):
    """A trace's file, the vendor of its GPUs ("" if unknown), and its start in ns (None if unknown)."""

    path: Path
    vendor: str
    start_ns: int | None

    @classmethod
    def of(cls, path: Path, trace: Trace, start_ns: int) -> Seen:
        """Return these facts of a trace, whose first record begins at `start_ns`."""
        return cls(path, _vendor(trace), start_ns if start_ns > FIRST_TRACES_NS else None)


def check_related(first: Seen, other: Seen) -> None:
    """Raise BadInputError if two traces cannot be of one job."""
    if why := _difference(first, other):
        raise BadInputError(
            f"{other.path} is of another job than {first.path}: {why}; import them separately."
        )


def _difference(first: Seen, other: Seen) -> str:
    if first.vendor and other.vendor and first.vendor != other.vendor:
        return f"it ran on GPUs of {other.vendor}, not of {first.vendor}"
    if first.start_ns is None or other.start_ns is None:
        return ""
    days = abs(other.start_ns - first.start_ns) / DAY_NS
    return f"they were recorded {days:,.0f} days apart" if days > MOST_DAYS else ""


def _vendor(trace: Trace) -> str:
    """Return the vendor whose runtime a trace calls; "" if it calls none, or those of several."""
    launches = trace.tables.get("launches", pl.DataFrame())
    if launches.is_empty():
        return ""
    calls = launches["api"].unique()
    called = [vendor for vendor, pattern in _VENDORS.items() if calls.str.contains(pattern).any()]
    return called[0] if len(called) == 1 else ""
