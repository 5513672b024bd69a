"""The tables of the package that are kept as data beside its code."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, ten times faster, where it was built


def load(package: str, name: str) -> Any:
    """The content of `NAME.yaml` in the package's folder; `name` may lead into a folder within."""
    text = files(package).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)
