"""The parts of a job: soundings of nodes or ranks, given as paths, directories of parts, or URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fathom.errors import BadInputError, NotASoundingError
from fathom.sounding.manifest_file import MANIFEST
from fathom.sounding.packing import SUFFIX, temporary_folder
from fathom.sounding.raw import import_raw
from fathom.sounding.remote import download, is_url
from fathom.sounding.store import Store, open_store

_PART = re.compile(r"part-(\d+)(?:-restart-(\d+))?\.fathom(?:\.zip)?")


@dataclass
class Parts:
    """The soundings of a job's parts, and why others hold no steps: a rank or a file, and the reason."""

    stores: list[Store] = field(default_factory=list)
    missing: dict[int | str, str] = field(default_factory=dict)


def collect(sources: Iterable[str | Path]) -> Parts:
    """Open the parts at `sources`. Parts that a crash left unfinished are finished in a temporary copy.

    In a directory, a part that is damaged or has no steps is left out, and its reason kept; of a part that
    the launcher restarted, the last attempt counts. Raises NotASoundingError for a damaged sounding that was
    named itself, and BadInputError if there is no part at all.
    """
    parts = Parts()
    for source in sources:
        path = download(str(source)) if is_url(str(source)) else Path(source)
        if not _is_directory_of_parts(path):
            parts.stores.append(_opened(path))
            continue
        for file in _last_attempts(path):
            _add(parts, file)
    if not parts.stores:
        reasons = "; ".join(f"{_named(who)} {why}" for who, why in parts.missing.items())
        why = f": {reasons}" if reasons else ""
        raise BadInputError(f"None of the job's parts contains steps{why}; mark steps with fathom.step().")
    return parts


def _is_directory_of_parts(path: Path) -> bool:
    return path.is_dir() and not (path / MANIFEST).exists() and not (path / "raw").is_dir() and any(_in(path))


def _in(folder: Path) -> Iterable[Path]:
    """Yield the soundings in a directory, packed or not."""
    named = (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return (path for path in named if path.name.endswith((".fathom", SUFFIX)))


def _last_attempts(folder: Path) -> list[Path]:
    last: dict[str, tuple[int, Path]] = {}
    for file in _in(folder):
        match = _PART.fullmatch(file.name)
        key, attempt = (match[1], int(match[2] or 0)) if match else (file.name, 0)
        last[key] = max(last.get(key, (attempt, file)), (attempt, file))
    return [file for _, file in last.values()]


def _add(parts: Parts, file: Path) -> None:
    match = _PART.fullmatch(file.name)
    who: int | str = int(match[1]) if match else file.name
    try:
        store = _opened(file)
    except (NotASoundingError, BadInputError):
        parts.missing[who] = "left a damaged recording"
        return
    if store.has("steps"):
        parts.stores.append(store)
    else:
        parts.missing[who] = f"recorded no step (its program: {store.manifest.ended})"


def _opened(path: Path) -> Store:
    """Open a sounding; finish raw records first, which a killed recorder leaves."""
    if not (path / "raw").is_dir() or (path / MANIFEST).exists():
        return open_store(path)
    return import_raw(path, temporary_folder() / path.name)


def _named(who: int | str) -> str:
    return f"part {who}" if isinstance(who, int) else who
