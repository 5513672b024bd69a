"""Replace soundings safely: never overwrite a folder that is not a sounding or contains other files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from fathom.errors import BadInputError

_RECORDED = ("plan.json", "launch.json")
_LOCKED = re.compile(
    r"manifest\.json(\.\w+\.part)?|machine\.json|kernel\.ncu-rep|raw|rank-\d+(/\w+\.parquet)?", re.ASCII
)


def require_replaceable(folder: Path) -> None:
    """Raise BadInputError if `folder` is not a sounding or contains foreign files."""
    if not ((folder / "manifest.json").is_file() or (folder / "raw").is_dir()):
        why = "is not a sounding"
    elif strange := _strange(folder):
        why = f"holds {strange}, which is not part of a sounding"
    else:
        return
    raise BadInputError(f"{folder} {why}, so --replace leaves it alone; choose another name with -o.")


class Aside:
    """Move an existing sounding aside until the new one is complete (`drop`) or has failed (`restore`).

    Raises BadInputError if `folder` must not be replaced, and OSError if it cannot be renamed.
    """

    def __init__(self, folder: Path) -> None:
        require_replaceable(folder)
        self._place = Path(os.path.realpath(folder))  # Path.resolve raises for a loop of links
        name = f".{self._place.name}.replaced-{os.getpid()}"
        self._here = self._place.rename(self._place.with_name(name))

    def drop(self) -> None:
        """Delete the old sounding, because the new one is complete."""
        shutil.rmtree(self._here, ignore_errors=True)

    def restore(self) -> None:
        """Delete any part of the new sounding, and move the old one back."""
        shutil.rmtree(self._place, ignore_errors=True)
        self._here.rename(self._place)


def _strange(folder: Path) -> str | None:
    raw = folder / "raw"
    if raw.is_dir() and any(raw.iterdir()) and not any((raw / name).is_file() for name in _RECORDED):
        return "a foreign folder `raw`"
    ranks = [file for rank in folder.glob("rank-*") if rank.is_dir() for file in rank.iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in (*folder.iterdir(), *ranks))
    return next((name for name in names if not _LOCKED.fullmatch(name)), None)
