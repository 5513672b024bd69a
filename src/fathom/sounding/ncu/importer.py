"""Import one or more files of ncu."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from fathom.errors import BadInputError, unimportable
from fathom.sounding.manifest import HotSpot, Manifest, Phase, Problem, Rank
from fathom.sounding.ncu.frames import SOURCE, counters, families, kernels
from fathom.sounding.ncu.launch import DURATION, Launch, Spot
from fathom.sounding.ncu.lines import encoding, head
from fathom.sounding.ncu.report import read_report
from fathom.sounding.ncu.spots import hot_spots
from fathom.sounding.ncu.table import read_csv
from fathom.sounding.store import Store, Writer

_REPORTS = (".ncu-rep", ".ncu-repz")
_MAGIC = b"NVR\0"
_TABLE = ".csv"
_BEGINNINGS = ("==PROF==", "==WARNING==", "==ERROR==")
_NAMED = 5  # counters listed in a sentence
_LARGEST = 2**60  # of a value, and of all durations together in ns
REPLAYED = "ncu replays and serialises launches, so their durations are not part of a step"

Rename = Callable[[Launch, str], str | None]


def is_ncu(path: Path) -> bool:
    """Return whether the file contains a report of ncu or its CSV; false for a folder."""
    if not path.is_file():
        return False
    if path.suffix in (*_REPORTS, _TABLE):
        return True
    start = head(path)
    text = start.decode(encoding(start), "replace").lstrip("\ufeff \r\n")
    listed = "Kernel Name" in text and not text.startswith(("{", "["))
    return start.startswith(_MAGIC) or text.startswith(_BEGINNINGS) or listed


def import_ncu(
    paths: list[Path],
    output: Path,
    *,
    name: str | None = None,
    replace: bool = False,
    parent: str | None = None,
    command: list[str] | None = None,
    ncu: Path | None = None,
    rename: Rename | None = None,
) -> Store:
    """Make a sounding from ncu's results: tables `counters` and `kernels`, and hot spots in the rank's facts.

    Each process becomes a rank. `ncu` is the path of Nsight Compute, and `parent` the sounding that asked for
    this one; `rename(launch, family)` returns the parent's name of a launch's family, or None to leave the
    launch out. Raises BadInputError if a file is not a result of ncu; then nothing is written.
    """
    problems: list[Problem] = []
    launches = [launch for path in paths for launch in _checked(path, _read(path, ncu, problems))]
    named = families(launches)
    if rename:
        renamed = [rename(launch, family) for launch, family in zip(launches, named, strict=True)]
        launches = [launch for launch, family in zip(launches, renamed, strict=True) if family is not None]
        named = [family for family in renamed if family is not None]
    if not launches:
        raise BadInputError(f"{paths[0]} has no launch of the requested kernel.")
    manifest = Manifest(name=name or output.stem, made_by="import", created_ns=time.time_ns(), parent=parent)
    manifest.command, manifest.problems = command or [], problems
    manifest.abstained = [{"what": "step time", "why": REPLAYED}, *_absent(launches)]
    return _write(launches, named, Writer(output, replace=replace), manifest)


def _read(path: Path, ncu: Path | None, problems: list[Problem]) -> list[Launch]:
    start = head(path)
    if not start:
        raise unimportable(path, "it is empty; profile again")
    if path.suffix in _REPORTS or start.startswith(_MAGIC):
        launches = read_report(path, ncu)
        if not launches:
            raise unimportable(path, "it has no kernel; profile again")
        return launches
    file = read_csv(path)
    if file.strange:
        text = f"{path.name} has lines that are not ncu's, which were left out: {file.strange}."
        problems.append(Problem("lines-not-ncu", text, file.strange))
    launches = list(file.launches.values())
    if any(launch.grid is None for launch in launches):
        text = f"{path.name} has no launch shapes, so a kernel's families are merged; export with --page raw."
        problems.append(Problem("no-launch-shape", text, spoils=["counters"]))
    return launches


def _checked(path: Path, launches: list[Launch]) -> list[Launch]:
    """Return the launches. Raises BadInputError if a value is larger than any that a GPU can have."""
    for launch in launches:
        for name, value in launch.values.items():
            if not abs(value) <= _LARGEST:  # true for NaN too
                raise unimportable(
                    path, f"its {name} of {value:.3g} is larger than a GPU can count; profile again"
                )
    if not 0 <= 1e9 * sum(launch.values.get(DURATION, 0.0) for launch in launches) <= _LARGEST:
        raise unimportable(path, f"the sum of its {DURATION} is not a time; profile again")
    return launches


def _absent(launches: list[Launch]) -> list[dict[str, str]]:
    """Return one entry that names the counters for which ncu has no value, or [] if it has all."""
    names = sorted({name for launch in launches for name in launch.absent if name not in launch.values})
    if not names:
        return []
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return [{"what": f"{len(names)} counters", "why": f"ncu says n/a: {listed}"}]


def _write(launches: list[Launch], named: list[str], writer: Writer, manifest: Manifest) -> Store:
    ranks: defaultdict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    for place, launch in enumerate(launches):
        ranks[launch.host, launch.pid].append(place)
    try:
        for rank, ((host, pid), places) in enumerate(ranks.items()):
            own, families_ = [launches[p] for p in places], [named[p] for p in places]
            table = kernels(own, families_)
            writer.write(rank, "kernels", table)
            writer.write(rank, "counters", counters(own, families_))
            facts = {"source": SOURCE, "hot_spots": msgspec.to_builtins(_spots(own, families_))}
            manifest.ranks.append(Rank(rank, pid, host, None, _devices(own), facts=facts))
            manifest.phases.append(Phase(rank, "counters", 0, 0, int(table["end_ns"][-1])))
    except BaseException:
        writer.discard()
        raise
    return writer.finish(manifest)


def _spots(launches: list[Launch], named: list[str]) -> list[HotSpot]:
    by_family: defaultdict[str, list[Spot]] = defaultdict(list)
    for launch, family in zip(launches, named, strict=True):
        by_family[family] += launch.spots
    return [row for family, spots in by_family.items() if spots for row in hot_spots(family, spots)]


def _devices(launches: list[Launch]) -> dict[int, str]:
    """Return the name of each device by index; its compute capability if the file does not have the name."""
    devices = {}
    for launch in launches:
        cc = launch.texts.get("cc")
        name = launch.texts.get("device__attribute_display_name")
        devices[launch.device] = name or (f"compute capability {cc}" if cc else "unknown")
    return devices
