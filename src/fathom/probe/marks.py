"""The calls that a program may make."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fathom.probe import current

if TYPE_CHECKING:
    from fathom.probe.session import Session

_asked: list[bool] = []  # not empty once a recording was started here: it does not restart after its end
F = TypeVar("F", bound=Callable[..., Any])


def step(samples: int | None = None, tokens: int | None = None, kind: str | None = None) -> None:
    """Mark the end of a step; `samples`, `tokens` and `kind` describe the step that ends.

    From the first call on, steps are counted by it (unless `--step-on` says otherwise). A program without
    torch needs no other call to be recorded.
    """
    session = current.session or _begun()
    if session is not None:
        session.signal("mark", 0, kind=kind, samples=samples, tokens=tokens)


def _begun() -> Session | None:
    """Return the recording of a program without torch, started by the first step; None if nothing records."""
    raw = os.environ.get("FATHOM_RAW")
    if not raw or _asked or "torch" in sys.modules:  # torch's import already began one, or it has ended
        return None
    _asked.append(True)
    from fathom.probe import boot

    boot.begin(raw)
    return current.session


class region:  # noqa: N801 - used like a function
    """Name a stretch of the program in the timeline: `with region("loss"):` or `@region("loss")`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._annotation: Any = None

    def __enter__(self) -> region:
        session = current.session
        if session is not None:
            self._annotation = session.annotation(self._name)
            if self._annotation is not None:
                self._annotation.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        annotation, self._annotation = self._annotation, None
        if annotation is not None:
            annotation.__exit__(*error)

    def __call__(self, function: F) -> F:
        name = self._name

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with region(name):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def start(raw: str, plan: dict[str, Any]) -> None:
    """Record this process into the folder `raw` from now on. Imports torch if installed."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401

    from fathom.probe import boot

    boot.start(raw, plan)


def stop() -> None:
    """End what `start` began: complete the files, remove the hooks."""
    from fathom.probe import boot

    boot.stop()
