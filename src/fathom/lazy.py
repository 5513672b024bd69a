"""Import a package's names on first use, so that `import` loads only the modules that are needed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` for a package, from its imports under `if TYPE_CHECKING:`."""
    tree = ast.parse(Path(str(sys.modules[package].__file__)).read_bytes())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    home_of = {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return sorted(home_of), load
