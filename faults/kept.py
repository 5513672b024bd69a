"""The recordings that are kept: soundings as folders, those of a group and a severity in one archive.

Recordings are alike: together they compress to half of what they take one by one, and tables in them are
therefore not compressed each by itself.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ENDING = ".tar.xz"


def archives(folder: Path) -> list[Path]:
    """GROUP.SEVERITY.tar.xz, each of GROUP.NAME.FORM.SEVERITY."""
    return sorted(folder.glob("*" + ENDING))


@contextmanager
def unpacked(archive: Path) -> Iterator[list[Path]]:
    """Its soundings, in order, for a while."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        yield sorted(Path(scratch).iterdir())


def take(folder: Path, name: str, into: Path) -> Path:
    """One sounding, unpacked into a folder. Raises FileNotFoundError where it is not kept."""
    with tarfile.open(folder / archive_of(name)) as tar:
        members = [member for member in tar if member.name.split("/")[0] == name]
        tar.extractall(into, members, filter="data")
    if not members:
        raise FileNotFoundError(name)
    return into / name


def keep(folder: Path, soundings: Iterable[Path]) -> None:
    """Put soundings into their archives, in place of those of the same name."""
    fresh: dict[str, list[Path]] = {}
    for sounding in soundings:
        fresh.setdefault(archive_of(sounding.name), []).append(sounding)
    for name, those in fresh.items():
        _rewrite(folder / name, those)


def archive_of(name: str) -> str:
    """The file that holds GROUP.NAME.FORM.SEVERITY."""
    group, *_, severity = name.split(".")
    return f"{group}.{severity}{ENDING}"


def _rewrite(archive: Path, fresh: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch)
        if archive.exists():
            with tarfile.open(archive) as tar:
                tar.extractall(path, filter="data")
        for sounding in fresh:
            shutil.rmtree(path / sounding.name, ignore_errors=True)
            shutil.copytree(sounding, path / sounding.name)
        part = archive.with_suffix(".part")
        with tarfile.open(part, "w:xz", preset=9 | lzma.PRESET_EXTREME) as tar:
            for sounding in sorted(path.iterdir()):
                tar.add(sounding, sounding.name, filter=_anonymous)
        part.replace(archive)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same archive whoever writes it, and whenever."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member
