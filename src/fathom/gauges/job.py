"""The job of a measuring process and its answers: one JSON object per line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GaugeJob:
    """The job of one process. `devices` are the inventory's numbers of the GPUs visible to it."""

    ids: tuple[str, ...]
    devices: tuple[int, ...] = ()
    full: bool = False
    data: str = "."  # the folder on the disk to measure
    pace: float = 1.0  # scales the time taken

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GaugeJob:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "ids": tuple(fields["ids"]), "devices": tuple(fields["devices"])})
