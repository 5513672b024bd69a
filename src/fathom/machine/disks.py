"""Describe the disks, and the file system of the working directory or of another folder.

Reads only kernel tables, never the disks, so that a dead mount cannot hang Fathom.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from fathom.machine.files import ROOT, names, number, text
from fathom.machine.model import Disk, Filesystem

_NO_DISK = re.compile(r"(loop|ram|zram|dm-|sr|fd|nbd|md)\d*")
_VIRTUAL = re.compile(r"(vd|xvd)[a-z]+")
_SHM = "/dev/shm"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}  # powers of two


class Mount(NamedTuple):
    """A mounted file system."""

    device: str  # device number: 259:1
    point: str
    type: str
    source: str
    options: str  # options of the file system

    @property
    def size(self) -> int | None:
        """Return the size option of a tmpfs in bytes; None if it has none."""
        size = re.search(r"(?:^|,)size=(\d{1,20})([kmg]?)(?:,|$)", self.options, re.I)
        return int(size.group(1)) << _UNITS[size.group(2).lower()] if size else None


def mounts(mountinfo: str) -> list[Mount]:
    """Parse the kernel's table of mounts, in order: a later mount hides earlier ones at the same point."""
    rows = (line.partition(" - ") for line in mountinfo.splitlines())
    fields = ((before.split(" "), after.split(" ")) for before, _, after in rows)
    return [
        Mount(place[2], _plain(place[4]), kind[0], _plain(kind[1]), kind[2])
        for place, kind in fields
        if len(place) > 5 and len(kind) > 2
    ]


def disks(root: Path = ROOT) -> list[Disk]:
    """Return the disks."""
    folder = root / "sys/block"
    return [_disk(folder / name) for name in names(folder) if not _NO_DISK.fullmatch(name)]


def _disk(path: Path) -> Disk:
    sectors = number(path / "size")
    return {
        "name": path.name,
        "kind": _kind(path),
        "model": text(path / "device/model").strip() or None,
        "size_bytes": sectors * 512 if sectors is not None else None,
    }


def _kind(path: Path) -> str | None:
    if path.name.startswith("nvme"):
        return "NVMe"
    if _VIRTUAL.fullmatch(path.name):  # the rotation flag is only the hypervisor's default
        return "virtual"
    return {0: "SSD", 1: "HDD"}.get(number(path / "queue/rotational"))  # type: ignore[arg-type]


def here(root: Path = ROOT) -> list[Filesystem]:
    """Return the file system of the working directory in a list; [] if it cannot be found."""
    try:
        mount = filesystem(Path(os.getcwd()), root)  # noqa: PTH109 - Path.cwd() is this very call
    except OSError:  # the directory was deleted
        return []
    return [mount] if mount else []


def filesystem(folder: Path, root: Path = ROOT) -> Filesystem | None:
    """Return the file system of the absolute `folder`; None if the kernel's mount table cannot be read."""
    around = [mount for mount in _mounts(root) if _holds(mount.point, str(folder))]
    if not around:
        return None
    deepest = max(len(mount.point) for mount in around)
    mount = [mount for mount in around if len(mount.point) == deepest][-1]
    return {
        "path": str(folder),
        "mount": mount.point,
        "type": mount.type,
        "source": mount.source,
        "disk": _disk_of(root, mount.source),
    }


def size_of_shm(root: Path = ROOT) -> int | None:
    """Return the bytes of /dev/shm, through which workers pass batches, by its mount options, or None."""
    sizes = [mount.size for mount in _mounts(root) if mount.point == _SHM]
    return sizes[-1] if sizes else None


def _mounts(root: Path) -> list[Mount]:
    return mounts(text(root / "proc/self/mountinfo"))


def _plain(word: str) -> str:
    """Decode the octal escapes for spaces and other special characters."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), word)


def _holds(mount: str, folder: str) -> bool:
    return folder == mount or folder.startswith(mount.rstrip("/") + "/")


def _disk_of(root: Path, source: str) -> str | None:
    """Return the disk of a device or partition, like `nvme0n1` for `/dev/nvme0n1p2`; None if unknown."""
    if not source.startswith("/dev/"):
        return None
    name = source.removeprefix("/dev/")
    if (root / "sys/block" / name).exists():
        return name
    return next(
        (disk for disk in names(root / "sys/block") if (root / "sys/block" / disk / name).exists()), None
    )
