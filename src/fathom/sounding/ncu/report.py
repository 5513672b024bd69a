"""Read `.ncu-rep` files with NVIDIA's `ncu_report`, which is part of Nsight Compute."""

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

from fathom.errors import BadInputError, unimportable
from fathom.sounding.ncu.launch import Launch

VARIABLE = "FATHOM_NCU"  # path of the ncu program, or of the folder of Nsight Compute
MODULE = "ncu_report"
UNREADABLE, NOT_LOADED = 3, 4  # exit statuses of `reading`
PATIENCE_S = 600
_READER, _FILE = Path("extras") / "python", f"{MODULE}.py"
_INSTALLED = ("usr/local/cuda*/nsight-compute*", "opt/nvidia/nsight-compute/*", "usr/lib/nsight-compute")


class NoReaderError(BadInputError):
    """NVIDIA's reader is missing or does not work (`why`); ncu's CSV can still be read."""

    def __init__(self, path: Path, why: str) -> None:
        exported = f"ncu --import {path.name} --page raw --csv > {path.stem}.csv"
        super().__init__(f"{path} cannot be imported: {why}, or export it where ncu is: {exported}.")
        self.why = why


def read_report(path: Path, ncu: Path | None = None) -> list[Launch]:
    """Read the launches of a report. Raises NoReaderError, and BadInputError if the report cannot be read."""
    folder = find_reader(path, ncu)
    with tempfile.TemporaryDirectory(prefix="fathom-ncu-") as own:
        result = Path(own) / "launches.json"
        status, said = _run(folder, path, result)
        if status == UNREADABLE:
            raise unimportable(path, f"Nsight Compute's reader cannot read it ({said}); profile again")
        if status == NOT_LOADED:
            raise NoReaderError(path, f"{folder / _FILE} does not load ({said}); repair its installation")
        if status != 0:
            raise NoReaderError(
                path, f"Nsight Compute's reader {_ended(status, said)}; try another version of it"
            )
        return msgspec.json.decode(result.read_bytes(), type=list[Launch])


def _run(*words: Path) -> tuple[int | None, str]:
    """Run `reading`; return its exit status (None if it timed out) and its last message."""
    command = [sys.executable, "-m", "fathom.sounding.ncu.reading", *map(str, words)]
    try:
        done = subprocess.run(
            command,
            env=_environment(),
            timeout=PATIENCE_S,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1][:120]


def _environment() -> dict[str, str]:
    """Return an environment with this process's module paths, without the working directory."""
    places = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": places, "PYTHONSAFEPATH": "1"}


def _ended(status: int | None, said: str) -> str:
    if status is None:
        return f"did not end within {PATIENCE_S} s"
    if -status in set(signal.Signals):
        return f"ended with {signal.Signals(-status).name}"
    return f"ended with status {status} ({said})"


def find_reader(path: Path, ncu: Path | None = None) -> Path:
    """Return the folder of `ncu_report.py`. Raises NoReaderError with advice if it is not found."""
    for folder in reader_folders(ncu):
        if (folder / _FILE).is_file():
            return folder
    why = f"reading it takes {_FILE} of an installed Nsight Compute, which was not found; name its ncu with "
    raise NoReaderError(path, why + VARIABLE)


def reader_folders(ncu: Path | None = None, root: Path = Path("/")) -> Iterator[Path]:
    """Yield folders to search for the reader: beside `ncu`, beside the ncu on PATH, and default folders."""
    named = ncu or os.environ.get(VARIABLE)
    given = [Path(named)] if named else []
    programs = [Path(program)] if (program := shutil.which("ncu")) else []
    for start in [*given, *programs]:
        for place in (start, *start.resolve().parents[:4]):
            yield place / _READER
            yield from sorted(place.glob(f"nsight-compute*/{_READER}"), reverse=True)
    yield from (Path(entry) for entry in sys.path if entry)
    for pattern in _INSTALLED:
        yield from sorted(root.glob(f"{pattern}/{_READER}"), reverse=True)
