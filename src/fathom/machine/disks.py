"""Disks, and the file systems that a program here would read from.

Reads only kernel tables, never the disks: a dead mount cannot hang Fathom.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fathom.machine.files import names, number, text

ROOT = Path("/")
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|sr|fd|nbd|md)\d*")
_VIRTUAL = re.compile(r"(vd|xvd)[a-z]+")
_SHM = "/dev/shm"


def disks(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return one dict per disk: `name`, `kind` (NVMe, SSD, HDD, virtual), `model`, `size_bytes`."""
    folder = root / "sys/block"
    return [_disk(folder / name) for name in names(folder) if not _NO_DISK.fullmatch(name)]


def _disk(path: Path) -> dict[str, Any]:
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
    if _VIRTUAL.fullmatch(path.name):  # its rotation flag is only the hypervisor's default
        return "virtual"
    return {0: "SSD", 1: "HDD"}.get(number(path / "queue/rotational"))  # type: ignore[arg-type]


def here(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return the file system of the working directory."""
    try:
        mount = filesystem(Path(os.getcwd()), root)  # noqa: PTH109 - Path.cwd() is this very call
    except OSError:  # the directory was deleted
        return []
    return [mount] if mount else []


def filesystem(folder: Path, root: Path = ROOT) -> dict[str, Any] | None:
    """Return `path`, `mount`, `type`, `source` and `disk` of the file system that holds `folder` (absolute).

    Reads the kernel's mount table; None if it cannot be read.
    """
    mounts = [mount for mount in _mounts(root) if _holds(mount["mount"], str(folder))]
    if not mounts:
        return None
    deepest = max(len(mount["mount"]) for mount in mounts)
    # When several are mounted at one place, the last one hides the others.
    mount = [mount for mount in mounts if len(mount["mount"]) == deepest][-1]
    return {"path": str(folder), **mount, "disk": _disk_of(root, mount["source"])}


def size_of_shm(root: Path = ROOT) -> int | None:
    """Return the size of /dev/shm, which loader workers use to pass batches, from its mount options."""
    lines = [_fields(line) for line in text(root / "proc/self/mountinfo").splitlines()]
    options = [fields[1] for fields in lines if fields and fields[0]["mount"] == _SHM]
    size = re.search(r"\bsize=(\d{1,20})([kmg]?)", options[-1]) if options else None
    return int(size.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30}[size.group(2)] if size else None


def _mounts(root: Path) -> list[dict[str, str]]:
    lines = (_fields(line) for line in text(root / "proc/self/mountinfo").splitlines())
    return [fields[0] for fields in lines if fields]


def _fields(line: str) -> tuple[dict[str, str], str] | None:
    """Return mount point, type and source from a line of mountinfo, and the options of its file system."""
    before, _, after = line.partition(" - ")
    place, kind = before.split(" "), after.split(" ")
    if len(place) < 6 or len(kind) < 3:
        return None
    return {"mount": _plain(place[4]), "type": kind[0], "source": _plain(kind[1])}, kind[2]


def _plain(word: str) -> str:
    """Decode the octal escapes for spaces and other special characters."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), word)


def _holds(mount: str, folder: str) -> bool:
    return folder == mount or folder.startswith(mount.rstrip("/") + "/")


def _disk_of(root: Path, source: str) -> str | None:
    """Return the disk that holds a partition: `/dev/nvme0n1p2` is on nvme0n1."""
    if not source.startswith("/dev/"):
        return None
    name = source.removeprefix("/dev/")
    if (root / "sys/block" / name).exists():
        return name
    return next(
        (disk for disk in names(root / "sys/block") if (root / "sys/block" / disk / name).exists()), None
    )
