"""One profiled launch of a kernel, and its sampled instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

DURATION = "gpu__time_duration.sum"


@dataclass
class Spot:
    """One sampled instruction: its source line, samples by stall reason, and wasted work by kind."""

    sass: str
    file: str | None = None
    line: int | None = None
    source: str | None = None
    reasons: dict[str, float] = field(default_factory=dict)
    waste: dict[str, float] = field(default_factory=dict)


@dataclass
class Launch:
    """A launch with its metrics in base units, or the mean of `count` launches if the file has only that."""

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
    spots: list[Spot] = field(default_factory=list)
