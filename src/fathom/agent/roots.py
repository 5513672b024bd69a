"""The folders that the server may read: every path is resolved, and refused if it leads elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from fathom.errors import BadInputError

DEPTH = 4  # of folders that are searched for soundings
PACKED = ".fathom.zip"


class Roots:
    """Folders with everything beneath them. Raises BadInputError if one is not a folder."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [folder.resolve() for folder in folders]
        for folder, given in zip(self.folders, folders, strict=True):
            if not folder.is_dir():
                raise BadInputError(f"{given} is not a folder; give folders as --root.")

    @property
    def first(self) -> Path:
        """The folder in which programs run, and to which relative paths refer."""
        return self.folders[0]

    def inside(self, text: str) -> Path:
        """Return the path without links. Raises BadInputError if it is outside all roots."""
        try:
            path = (self.first / text).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a NUL
            raise BadInputError(f"{text!r} is not a valid path; check it.") from None
        if not self._holds(path):
            raise BadInputError(f"{text!r} is outside the folders that this server may read: {self}.")
        return path

    def sounding(self, text: str) -> Path:
        """Return the path of a sounding. Raises BadInputError unless it and all its files are inside."""
        path = self.inside(text)
        if not path.exists():
            listed = ", ".join(map(self.shown, islice(self.soundings(), 20)))
            raise BadInputError(
                f"There is no sounding {text!r}; {f'there are {listed}' if listed else 'record one'}."
            )
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                if not self._holds((Path(folder) / name).resolve()):
                    raise BadInputError(
                        f"{text!r} contains a link to a place outside {self}; remove the link."
                    )
        return path

    def soundings(self) -> Iterator[Path]:
        """Yield soundings in the roots, packed or not, at most DEPTH folders deep."""
        for root in self.folders:
            for folder, folders, files in os.walk(root):
                here = Path(folder)
                yield from (here / name for name in sorted(files) if name.endswith(PACKED))
                yield from (here / name for name in sorted(folders) if name.endswith(".fathom"))
                deep = len(here.relative_to(root).parts) >= DEPTH
                folders[:] = [] if deep else [f for f in sorted(folders) if not _skipped(f)]

    def shown(self, path: Path) -> str:
        """Return the path relative to the first root if it is inside."""
        return str(path.relative_to(self.first) if path.is_relative_to(self.first) else path)

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)

    def __str__(self) -> str:
        return ", ".join(map(str, self.folders))


def _skipped(folder: str) -> bool:
    return folder.startswith(".") or folder.endswith(".fathom") or folder in ("node_modules", "__pycache__")
