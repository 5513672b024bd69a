"""What may be overwritten: a sounding, and no folder that only looks like one."""

from __future__ import annotations

import os
import re
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


def set_aside(folder: Path) -> Path:
    """Have a sounding make room for another one, and tell where it is now: the other may come to nothing.

    Raises BadInputError where it may not be replaced, and OSError.
    """
    require_replaceable(folder)
    place = folder.resolve()
    return place.rename(place.with_name(f".{place.name}.replaced-{os.getpid()}"))


def _strange(folder: Path) -> str | None:
    raw = folder / "raw"
    if raw.is_dir() and any(raw.iterdir()) and not any((raw / name).is_file() for name in _RECORDED):
        return "a folder raw of others"
    ranks = [file for rank in folder.glob("rank-*") if rank.is_dir() for file in rank.iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in (*folder.iterdir(), *ranks))
    return next((name for name in names if not _HELD.fullmatch(name)), None)
