"""`.ncu-rep` through NVIDIA's own reader, `ncu_report`, which lies beside an installed Nsight Compute."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fathom.errors import BadInputError
from fathom.sounding.ncu.launch import Launch
from fathom.sounding.ncu.lines import bad

VARIABLE = "FATHOM_NCU"  # the ncu program, or the folder that Nsight Compute is installed in
MODULE = "ncu_report"
UNREADABLE, NOT_LOADED = 3, 4  # exit statuses of `reading`
_READER, _FILE = Path("extras") / "python", f"{MODULE}.py"
_INSTALLED = ("usr/local/cuda*/nsight-compute*", "opt/nvidia/nsight-compute/*", "usr/lib/nsight-compute")


class NoReaderError(BadInputError):
    """NVIDIA's reader is not there, or does not work here; ncu's CSV can still be read."""


def read_report(path: Path, ncu: Path | None = None) -> list[Launch]:
    """The launches in a report. Raises NoReaderError, and BadInputError where the report cannot be read."""
    folder = find_reader(path, ncu)
    with tempfile.TemporaryDirectory(prefix="fathom-ncu-") as own:
        result = Path(own) / "launches.json"
        done = _run(folder, path, result)
        said = (done.stderr.strip().splitlines() or [""])[-1]
        if done.returncode == UNREADABLE:
            raise bad(path, f"Nsight Compute's reader cannot read it ({said}); profile again")
        if done.returncode == NOT_LOADED:
            raise NoReaderError(f"{path} cannot be imported: {folder / _FILE} does not load ({said}).")
        if done.returncode:
            raise NoReaderError(f"{path} cannot be imported: {_died(done.returncode)}; {_exported(path)}.")
        return msgspec.json.decode(result.read_bytes(), type=list[Launch])


def _run(*words: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fathom.sounding.ncu.reading", *map(str, words)]
    return subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)


def _environment() -> dict[str, str]:
    """With this process's own places of modules, Fathom's among them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _died(status: int) -> str:
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
    return f"Nsight Compute's reader ended with {name}"


def _exported(path: Path) -> str:
    return f"export it where ncu is: ncu --import {path.name} --page raw --csv > {path.stem}.csv"


def find_reader(path: Path, ncu: Path | None = None) -> Path:
    """The folder of `ncu_report.py`. Raises NoReaderError that says what to do without it."""
    for folder in reader_folders(ncu):
        if (folder / _FILE).is_file():
            return folder
    raise NoReaderError(
        f"{path} cannot be imported: reading it takes {_FILE} of an installed Nsight Compute, which was not "
        f"found; name its ncu with {VARIABLE}, or {_exported(path)}."
    )


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
