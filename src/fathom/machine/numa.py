"""NUMA nodes: processors, memory and distances."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fathom.machine.files import integer, names, text

ROOT = Path("/")


def nodes(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return one dict per node: `node`, `cpus` (ranges), `memory_bytes`, `distances` to every node."""
    folder = root / "sys/devices/system/node"
    return [_node(folder / name) for name in names(folder) if re.fullmatch(r"node\d+", name)]


def _node(path: Path) -> dict[str, Any]:
    size = re.search(r"MemTotal:\s+(\d{1,20}) kB", text(path / "meminfo"))
    return {
        "node": int(path.name.removeprefix("node")),
        "cpus": text(path / "cpulist").strip(),
        "memory_bytes": int(size.group(1)) * 1024 if size else None,
        "distances": [d for word in text(path / "distance").split() if (d := integer(word)) is not None],
    }
