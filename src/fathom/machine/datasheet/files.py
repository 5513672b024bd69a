"""The data files of this room."""

from __future__ import annotations

from typing import Any

from fathom import data


def load(name: str) -> Any:
    """The content of `NAME.yaml`."""
    return data.load(__package__, name)
