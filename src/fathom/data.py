"""Load the package's data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def load(package: str, name: str) -> Any:
    """Return the content of `NAME.yaml` in the package's folder; `name` may contain a subfolder."""
    return parse((ROOT / package.replace(".", "/") / f"{name}.yaml").read_text(encoding="utf-8"))


def parse(text: str) -> Any:
    """Return the value of a YAML document of ours. Raises yaml.YAMLError."""
    import yaml  # imported here, because few commands load a data file

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # C, if built, is ten times faster
    return _built(loader, loader.get_single_node())


def _built(loader: Any, node: Any) -> Any:
    """Return the value of a node; the loader's own methods take twice as long."""
    if node.id == "sequence":
        return [_built(loader, value) for value in node.value]
    if node.id == "mapping":
        loader.flatten_mapping(node)
        return {_built(loader, key): _built(loader, value) for key, value in node.value}
    return node.value if node.tag == "tag:yaml.org,2002:str" else loader.construct_object(node)
