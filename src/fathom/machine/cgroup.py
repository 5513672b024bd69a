"""Limits of this process's control group (cgroup) and its ancestors, in cgroup versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fathom.machine.files import ROOT, natural, number, text
from fathom.machine.model import GroupLimits

UNLIMITED = 1 << 60  # bytes; version 1 writes "no limit" as the largest number of whole pages


def limits(root: Path = ROOT) -> GroupLimits:
    """Return the limits; None: no visible limit."""
    return {
        "version": version(root),
        "cores": quota(root),
        "memory_bytes": memory(root),
        "pids": _least(_numbers(root, "pids", "pids.max", "pids.max")),
        "cpus": _cpus(root),
    }


def version(root: Path = ROOT) -> int | None:
    """Return 2 for the unified hierarchy, 1 for the older one, or None if there are no cgroups."""
    base = root / "sys/fs/cgroup"
    if (base / "cgroup.controllers").exists() or (base / "cpu.max").exists():
        return 2
    return 1 if (base / "cpu").exists() or (base / "memory").exists() else None


def quota(root: Path = ROOT) -> float | None:
    """Return the cores that the tightest group allows, or None if there is no limit."""
    return _least(_quotas(root))


def memory(root: Path = ROOT) -> int | None:
    """Return the bytes that the tightest group allows, or None if there is no limit."""
    sizes = _numbers(root, "memory", "memory.max", "memory.limit_in_bytes")
    return _least([size for size in sizes if size < UNLIMITED])


def groups(root: Path, controller: str, own: str | None = None) -> Iterator[Path]:
    """Yield the folders of this process's group and its ancestors for one controller, in either version.

    `own` is the content of /proc/self/cgroup. In a container the group may be the root, which comes last.
    """
    base = root / "sys/fs/cgroup"
    lines = text(root / "proc/self/cgroup") if own is None else own
    for line in [*lines.splitlines(), "0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        top = base / controllers if controllers else base
        if not top.exists():
            top = base / controller
        place = top / path.strip("/")
        yield from (p for p in (place, *place.parents) if p == top or top in p.parents)


def _numbers(root: Path, controller: str, *files: str) -> list[int]:
    values = (number(group / file) for group in groups(root, controller) for file in files)
    return [value for value in values if value is not None]


def _quotas(root: Path) -> Iterator[float]:
    for group in groups(root, "cpu"):
        old = f"{text(group / 'cpu.cfs_quota_us')} {text(group / 'cpu.cfs_period_us')}"
        for words in (text(group / "cpu.max"), old):
            with suppress(ValueError):
                if cores := parse_quota(words):
                    yield cores


def parse_quota(words: str) -> float | None:
    """Return the cores that a line `QUOTA PERIOD` allows, or None if there is no quota. Raises ValueError."""
    parts = words.split()
    if not parts or parts[0] in ("max", "-1"):
        return None
    allowed, period = (natural(part) for part in (*parts, "")[:2])
    if allowed is None or not period:
        raise ValueError(f"{words!r} is not a quota")
    return allowed / period


def _cpus(root: Path) -> str | None:
    for group in groups(root, "cpuset"):
        for file in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if cpus := text(group / file).strip():
                return cpus
    return None


def _least(values: Any) -> Any:
    return min(values, default=None)
