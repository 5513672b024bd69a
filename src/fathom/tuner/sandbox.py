"""A scratch copy of the program's folder, so that runs of candidates leave its files as they are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from fathom.errors import BadInputError
from fathom.units import GIB

MOST_BYTES = 4 * GIB  # of a folder that is copied
LEFT_OUT = ("__pycache__", ".git", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache")
ENDINGS = (".fathom", ".tune")


class Scratch:
    """A copy of `folder` at `place`, renewed before each run. Large folders have to be left in place."""

    def __init__(self, folder: Path, place: Path, in_place: bool = False) -> None:
        self.folder, self.place, self.in_place = folder.resolve(), place, in_place
        self.changed: Mapping[str, bytes] = {}  # files by path that the copy has instead of the folder's
        if not in_place:
            _check_size(self.folder)

    @property
    def cwd(self) -> Path:
        """Where the program runs."""
        return self.folder if self.in_place else self.place

    def renew(self) -> None:
        """Copy the program's folder again."""
        if self.in_place:
            return
        self.remove()
        shutil.copytree(self.folder, self.place, symlinks=True, ignore=_ignored, copy_function=_copied)
        for path, content in self.changed.items():
            (self.place / path).unlink()  # a link would lead to the original
            (self.place / path).write_bytes(content)

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.place, ignore_errors=True)

    def words(self, command: list[str]) -> list[str]:
        """Return the command with paths in the folder replaced by those in its copy."""
        if self.in_place:
            return command
        return [self._copied_path(word) for word in command]

    def _copied_path(self, word: str) -> str:
        path = Path(word)
        inside = path.is_absolute() and path.is_relative_to(self.folder)
        if not inside or any(part in LEFT_OUT for part in path.parts):
            return word
        return str(self.place / path.relative_to(self.folder))


def _ignored(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in LEFT_OUT or name.endswith(ENDINGS)}


def _copied(source: str, target: str) -> None:
    """Copy a file; pipes, sockets and files that cannot be read are left out."""
    if os.path.isfile(source) and os.access(source, os.R_OK):  # noqa: PTH113
        shutil.copy2(source, target)


def _check_size(folder: Path) -> None:
    total = 0
    for path in _files(folder):
        total += path.lstat().st_size
        if total > MOST_BYTES:
            raise BadInputError(
                f"{folder} holds more than {MOST_BYTES // GIB} GiB, too much to copy for every run; start the"
                " program from a smaller folder, or give --in-place if its runs may change these files."
            )


def _files(folder: Path) -> Iterator[Path]:
    for place, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in _ignored(place, names)]
        yield from (Path(place, file) for file in files)
