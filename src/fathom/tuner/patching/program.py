"""The program's source as it ran: files of its folder that have not changed since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from fathom.tuner.patching.sites import Frame, Place, Sites
from fathom.tuner.patching.source import RefusedError, Source
from fathom.tuner.sandbox import LEFT_OUT

PACKAGES = {*LEFT_OUT, "site-packages", "dist-packages"}
UNUSABLE = set('"\\\t\r\n')  # in names of a patch


class Program:
    """The source in `folder` of a program that ran there, or in the copy `ran_in`."""

    def __init__(self, folder: Path, ran_in: Path, processes: Sequence[Sites]) -> None:
        self.folder, self.processes = folder.resolve(), processes
        self._folders = (ran_in.resolve(), self.folder)
        self._sources: dict[str, Source] = {}

    def places(self, kind: str) -> list[Place]:
        """Return the places of a kind in all processes."""
        return [place for sites in self.processes for place in sites.of(kind)]

    def steps(self) -> list[Sequence[Frame]]:
        """Return the stack of a step of each process."""
        return [sites.steps[-1] for sites in self.processes]

    def main(self) -> Source:
        """Return the script that was started."""
        scripts = {sites.main for sites in self.processes}
        if len(scripts) != 1 or None in scripts:
            raise RefusedError("the program's main script is unknown")
        return self.source(scripts.pop() or "")

    def source_of(self, frame: Frame) -> Source:
        return self.source(frame.file)

    def source(self, file: str) -> Source:
        """Return a source by the path that it ran from. Raises RefusedError if it cannot be changed."""
        path = self._relative(file)
        if path not in self._sources:
            try:
                data = (self.folder / path).read_bytes()
            except OSError:
                raise RefusedError(f"{path} cannot be read") from None
            if {sites.sources[file] for sites in self.processes if file in sites.sources} != {crc32(data)}:
                raise RefusedError(f"{path} has changed since the program ran")
            self._sources[path] = Source(path, data)
        return self._sources[path]

    def _relative(self, file: str) -> str:
        folder = next((folder for folder in self._folders if Path(file).is_relative_to(folder)), None)
        if folder is None:
            raise RefusedError(f"{'/'.join(Path(file).parts[-2:])} is outside of this folder")
        path = Path(file).relative_to(folder)
        if PACKAGES & set(path.parts):
            raise RefusedError(f"{'/'.join(path.parts[-2:])} belongs to an installed package")
        if UNUSABLE & set(str(path)):
            raise RefusedError("the name of a source file has characters that a patch cannot name")
        return path.as_posix()
