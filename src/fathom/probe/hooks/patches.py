"""Replace attributes of foreign classes and modules reversibly.

What wrappers do beside the original call passes the fence (`faults.guarded`). The original's exceptions pass
unchanged, without our frames in their tracebacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fathom.probe.faults import trim

_MISSING = object()


class Patches:
    """Replaced attributes. `undo` restores those that nobody else has replaced since."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`."""
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._done.append((owner, name, before, vars(owner)[name]))

    def wrap(self, owner: Any, name: str, wrapping: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `wrapping(original)`; do nothing if there is no such attribute."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, wrapping(original))

    def undo(self) -> None:
        """Restore everything, last first."""
        while self._done:
            owner, name, before, ours = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def around(call: Callable[..., Any]) -> Callable[[Any], Any]:
    """Wrap a function to call `call` instead, with the function before the same arguments."""

    def wrapping(original: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(original, *args, **kwargs)
            except BaseException as error:
                trim(error)
                raise

        return wrapper

    return wrapping


def before(first: Callable[..., Any]) -> Callable[[Any], Any]:
    """Wrap a function to call `first` before it, with the same arguments."""

    def call(original: Any, /, *args: Any, **kwargs: Any) -> Any:
        first(*args, **kwargs)
        return original(*args, **kwargs)

    return around(call)


def after(then: Callable[..., Any], even_if_it_fails: bool = False) -> Callable[[Any], Any]:
    """Wrap a function to call `then` after it, with the same arguments."""

    def call(original: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if even_if_it_fails:
                then(*args, **kwargs)
            raise
        then(*args, **kwargs)
        return result

    return around(call)
