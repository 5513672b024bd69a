"""The job of a measuring process, passed to it as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GaugeJob:
    """The ids to measure in one process. `devices` are the indices, in the inventory, of its visible GPUs."""

    ids: tuple[str, ...]
    devices: tuple[int, ...] = ()
    full: bool = False
    data: str = "."  # the folder on the disk to measure
    pace: float = 1.0  # factor on the measuring time

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GaugeJob:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "ids": tuple(fields["ids"]), "devices": tuple(fields["devices"])})
