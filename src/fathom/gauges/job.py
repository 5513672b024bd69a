"""What a measuring process is told, and what it tells: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """What one process measures. `devices` are the inventory's numbers of the GPUs that it sees."""

    ids: tuple[str, ...]
    devices: tuple[int, ...] = ()
    full: bool = False
    data: str = "."  # the folder whose disk is measured
    pace: float = 1.0  # how much of the usual time to take

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "ids": tuple(fields["ids"]), "devices": tuple(fields["devices"])})
