"""Find running recordings."""

from __future__ import annotations

import zipfile
from pathlib import Path

from fathom.errors import BadInputError

LAUNCH, END = "launch.json", "end.json"


def recordings(folder: Path) -> list[Path]:
    """Return the recording in `folder`, or those of a job's ranks in it, by number; [] if there is none."""
    if (folder / "raw" / LAUNCH).is_file():
        return [folder]
    parts = [path for path in folder.glob("part-*.fathom") if (path / "raw" / LAUNCH).is_file()]
    return sorted(parts, key=lambda path: (len(path.name), path.name))


def running(path: Path | None) -> Path:
    """Return `path`, or the newest running recording in this folder. Raises BadInputError without one."""
    if path is not None:
        _require(path)
        return path
    running_now = [folder for folder in Path().iterdir() if folder.is_dir() and _runs(folder)]
    if not running_now:
        raise BadInputError("There is no running recording in this folder; start one with `fathom run`.")
    return max(running_now, key=lambda folder: (recordings(folder)[0] / "raw" / LAUNCH).stat().st_mtime_ns)


def _runs(folder: Path) -> bool:
    parts = recordings(folder)
    return bool(parts) and not (parts[0] / "raw" / END).exists()


def _require(path: Path) -> None:
    if recordings(path):
        return
    if (path / "manifest.json").exists() or (path.is_file() and zipfile.is_zipfile(path)):
        raise BadInputError(f"{path} is a finished recording; read it with `fathom report {path}`.")
    if path.is_file():
        raise BadInputError(f"{path} is not a sounding; give the folder that `fathom run -o` writes to.")
    if not path.exists():
        raise BadInputError(f"{path} does not exist; give the folder that `fathom run -o` writes to.")
    raise BadInputError(f"{path} is not a running recording; start one with `fathom run -- COMMAND`.")
