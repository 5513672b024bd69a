"""What may be overwritten: a sounding, and no folder that only looks like one."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from fathom.errors import BadInputError

_RECORDED = ("plan.json", "launch.json")
_HELD = re.compile(
    r"manifest\.json(\.part)?|machine\.json|kernel\.ncu-rep|raw|rank-\d+(/\w+\.parquet)?", re.ASCII
)


def require_replaceable(folder: Path) -> None:
    """Raises BadInputError where `folder` is no sounding or holds what none has."""
    if not ((folder / "manifest.json").is_file() or (folder / "raw").is_dir()):
        why = "is not a sounding"
    elif strange := _strange(folder):
        why = f"holds {strange}, which no sounding has"
    else:
        return
    raise BadInputError(f"{folder} {why}, so --replace leaves it alone; choose another name with -o.")


class Aside:
    """A sounding that makes room for another one at its place, which may come to nothing.

    Raises BadInputError where it may not be replaced, and OSError.
    """

    def __init__(self, folder: Path) -> None:
        require_replaceable(folder)
        self._place = folder.resolve()
        name = f".{self._place.name}.replaced-{os.getpid()}"
        self._here = self._place.rename(self._place.with_name(name))

    def drop(self) -> None:
        """The other one stands."""
        shutil.rmtree(self._here, ignore_errors=True)

    def restore(self) -> None:
        """Put it back, in place of what there is of the other one."""
        shutil.rmtree(self._place, ignore_errors=True)
        self._here.rename(self._place)


def _strange(folder: Path) -> str | None:
    raw = folder / "raw"
    if raw.is_dir() and any(raw.iterdir()) and not any((raw / name).is_file() for name in _RECORDED):
        return "a folder raw of others"
    ranks = [file for rank in folder.glob("rank-*") if rank.is_dir() for file in rank.iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in (*folder.iterdir(), *ranks))
    return next((name for name in names if not _HELD.fullmatch(name)), None)
