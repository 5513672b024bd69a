"""Load the package's data files."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def load(package: str, name: str) -> Any:
    """Return the content of `NAME.yaml` in the package's folder; `name` may contain a subfolder."""
    import yaml  # imported here, because few commands load a data file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader, if built, is ten times faster
    text = files(package).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=loader)
