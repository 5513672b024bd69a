"""Addresses of functions: `module:function`, or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from fathom.errors import BadInputError

_NO_FUNCTION = "{place} has no '{name}'; give one of its functions."
_MISSING = {
    "inputs": "{place} defines no inputs(seed), which returns a call's arguments; add it, or use --inputs."
}


def split(address: str) -> tuple[str, str]:
    """Split an address into module or file and name. Raises BadInputError."""
    place, colon, name = address.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise BadInputError(f"'{address}' names no function; write module:function or file.py:function.")
    return place, name


def absolute(address: str) -> str:
    """Return the address with an absolute path, for processes in other directories. Raises BadInputError."""
    place, name = split(address)
    if not place.endswith(".py"):
        return address
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise BadInputError(f"{place} is not a file; give the file that defines {name}.")
    return f"{path}:{name}"


def of(function: Callable[..., Any]) -> str:
    """Return the address by which another process can import `function`. Raises BadInputError."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    if not module or not name or "<" in name:
        raise BadInputError(
            f"{name or function!r} cannot be imported by name; define it at the top level of a module."
        )
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" and file is None:
        raise BadInputError(f"{name} was defined in an interactive session; put it into a file.")
    return f"{Path(file).resolve()}:{name}" if file and file.endswith(".py") else f"{module}:{name}"


def load(address: str) -> Callable[..., Any]:
    """Import the function. Raises BadInputError if it does not exist; errors of its module propagate."""
    place, name = split(address)
    target: Any = module_of(place)
    for part in name.split("."):
        if not hasattr(target, part):
            raise BadInputError(_MISSING.get(name, _NO_FUNCTION).format(place=place, name=name))
        target = getattr(target, part)
    if not callable(target):
        raise BadInputError(f"{address} is not callable; give a function.")
    return target


def module_of(place: str) -> ModuleType:
    """Import the module, once per process, with its folder on `sys.path` as for a script."""
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise BadInputError(f"{place} cannot be imported: {error}.") from None
    path = Path(place)
    name = f"{path.stem}_{sha256(place.encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInputError(f"{place} cannot be imported; give a Python file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
