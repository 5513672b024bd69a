"""The data files of this room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent


def load(name: str) -> Any:
    """The content of `NAME.yaml`."""
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
