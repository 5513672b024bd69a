"""The calls that a program may make itself."""

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

_asked: list[bool] = []  # whether a recording was begun here: after its end there is no other
F = TypeVar("F", bound=Callable[..., Any])


def step(samples: int | None = None, tokens: int | None = None, kind: str | None = None) -> None:
    """Call it where a step ends; `samples`, `tokens` and `kind` describe the step that ends.

    Once called, it is what steps are counted by (unless `--step-on` says otherwise). It is all that a program
    without torch needs to be recorded.
    """
    session = current.session or _begun()
    if session is not None:
        session.signal("mark", 0, kind=kind, samples=samples, tokens=tokens)


def _begun() -> Session | None:
    """The recording of a program without torch, which the first step begins; None where nothing records."""
    raw = os.environ.get("FATHOM_RAW")
    if not raw or _asked or "torch" in sys.modules:  # with torch, its import began one, or it has ended
        return None
    _asked.append(True)
    from fathom.probe import boot

    boot.begin(raw)
    return current.session


class region:  # noqa: N801 - used like a function
    """`with region("loss"):` or `@region("loss")`: names a stretch of the program in the timeline."""

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
    """Record this process into the folder `raw` from now on. torch is imported, where there is one."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401

    from fathom.probe import boot

    boot.start(raw, plan)


def stop() -> None:
    """End what `start` began: files are complete, hooks are off."""
    from fathom.probe import boot

    boot.stop()
