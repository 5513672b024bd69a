"""Unpatched copies of standard modules, for code inside a recorded program, which may have patched its own.

Programs replace functions such as `time.time_ns` or `json.dumps` to fake or count them. These copies are made
anew from the modules' code, so it does not matter when the program patched them. They are not modules of
`sys.modules`, where tools that fake the time would find them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import _thread as _thread
    import gc as gc
    import json as json
    import os as os
    import time as time
    from io import open as open


def _built_in(name: str) -> ModuleType:
    """Create a module of the interpreter again."""
    import _imp
    from importlib.machinery import BuiltinImporter

    spec: Any = BuiltinImporter.find_spec(name)
    module = _imp.create_builtin(spec)
    _imp.exec_builtin(module)
    return module


def _again(name: str) -> Any:
    """Execute the code of a Python module again."""
    spec: Any = sys.modules[name].__spec__
    module = ModuleType(name)
    module.__package__ = spec.parent
    exec(spec.loader.get_code(name), module.__dict__)
    return module


def _operating_system() -> Any:
    import os

    ours: Any = ModuleType("os")
    fresh = {name: value for name, value in vars(_built_in("posix")).items() if name != "environ"}
    ours.__dict__.update(vars(os), **fresh)
    generic, ours.path = _again("genericpath"), _again("posixpath")
    generic.os = ours.path.os = ours
    ours.path.__dict__.update({name: getattr(generic, name) for name in generic.__all__})
    return ours


def _copies() -> dict[str, object]:
    import json  # noqa: F401 - so that its code can be found

    return {
        "os": _operating_system(),
        "json": _again("json"),
        **{name: _built_in(name) for name in ("time", "gc", "_thread")},
    }


def _modules() -> dict[str, object]:
    import _thread
    import gc
    import json
    import os
    import time

    return {"os": os, "json": json, "time": time, "gc": gc, "_thread": _thread}


if not TYPE_CHECKING:
    import _io

    open = _io.open  # `builtins.open` may be patched
    try:
        globals().update(_copies())
    except Exception:  # another implementation of Python
        globals().update(_modules())
