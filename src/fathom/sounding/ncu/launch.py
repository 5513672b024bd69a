"""One profiled launch of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DURATION = "gpu__time_duration.sum"


@dataclass
class Launch:
    """A launch with its metrics in base units; `count` launches if the file has only their mean."""

    name: str
    pid: int | None = None
    host: str | None = None
    device: int = 0
    stream: int | None = None
    grid: str | None = None  # 64x1x1
    block: str | None = None
    count: int = 1
    values: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)  # metrics that ncu could not collect
    spots: list[dict[str, Any]] = field(default_factory=list)  # see `hot_spots`
