"""Replacing attributes of other people's classes and modules, so that it can be undone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_MISSING = object()


class Patches:
    """Attributes that were replaced. `undo` puts back those that nobody else replaced since."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._done.append((owner, name, before, vars(owner)[name]))

    def wrap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `around(original)`; nothing where there is no such attribute."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, around(original))

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._done:
            owner, name, before, ours = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def after(original: Any, then: Any) -> Any:
    """The method `original`, followed by `then` with the same arguments."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        then(self, *args, **kwargs)
        return result

    return wrapper


def before(original: Any, first: Any) -> Any:
    """The method `original`, preceded by `first` with the same arguments."""

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        first(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return wrapper
