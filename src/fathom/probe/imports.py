"""Run actions when the program imports certain modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fathom.probe.faults import guarded, trim

Then = Callable[[Any], None]
Before = Callable[[], None]


class _Watch:
    """A finder that lets other finders find a module, and adds actions to its import."""

    def __init__(self) -> None:
        self.wanted: dict[str, list[tuple[Then, Before | None]]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.wanted:
            return None
        actions = self.wanted[name]
        for finder in _after(self):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                _follow(spec, actions, self.wanted)
                return spec
        return None


def _after(finder: Any) -> list[Any]:
    """Return the finders that Python has not asked yet."""
    known = [id(other) for other in sys.meta_path]
    return sys.meta_path[known.index(id(finder)) + 1 :] if id(finder) in known else []


_watch = _Watch()


def when_imported(name: str, then: Then, before: Before | None = None) -> None:
    """Call `before()` before module `name` is imported, and `then(module)` after.

    If it is imported already, call `then` now, and never `before`.
    """
    module = sys.modules.get(name)
    if module is not None:
        then(module)
        return
    _watch.wanted.setdefault(name, []).append((then, before))
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)


def forget() -> None:
    """Cancel all actions."""
    _watch.wanted.clear()
    if _watch in sys.meta_path:
        sys.meta_path.remove(_watch)


@guarded("following imports")
def _follow(spec: Any, actions: list[tuple[Then, Before | None]], wanted: dict[str, object]) -> None:
    execute = getattr(spec.loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: Any) -> None:
        wanted.pop(
            spec.name, None
        )  # only now: `importlib.util.find_spec` also asks, and then imports nothing
        for _, before in actions:
            if before is not None:
                guarded("following imports")(before)()
        try:
            execute(module)
        except BaseException as error:
            trim(error)
            raise
        for then, _ in actions:
            guarded("following imports")(then)(module)

    spec.loader.exec_module = exec_module
