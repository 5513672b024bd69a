"""The calls that a program may make."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fathom.probe import current
from fathom.probe.faults import (
    belongs_to_program,
    contain,
    get_profile,
    get_trace,
    guarded,
    is_function,
    set_profile,
    set_trace,
    suspended,
    this_thread,
)
from fathom.probe.inherited import RAW, variables
from fathom.probe.threads import get_ident

if TYPE_CHECKING:
    from fathom.probe.session import Session

PART = "counting steps"
_asked: list[bool] = []  # not empty once a step had the chance to start a recording, which is never repeated
F = TypeVar("F", bound=Callable[..., Any])


def step(samples: int | None = None, tokens: int | None = None, kind: str | None = None) -> None:
    """Mark the end of a step; `samples`, `tokens` and `kind` describe the step that ends.

    From the first call on, steps are counted by it (unless `--step-on` says otherwise). A program without
    torch is recorded without any other call.
    """
    try:
        session = current.session
        if session is None:
            if _asked:
                return
        else:  # most steps of a long run; see `DeferredMarks`
            marks = session.deferred
            if (
                (samples is marks.samples or samples == marks.samples)
                and (tokens is marks.tokens or tokens == marks.tokens)
                and (kind is marks.kind or kind == marks.kind)
                and marks.marker == this_thread()
            ):
                now = marks.now()
                if now < marks.until and (facts := marks.facts).alike:
                    marks.append(now)
                    facts.alike = facts.steady
                    return
    except RecursionError:  # here or in the program; a call to report it would raise again
        return
    except BaseException as error:
        contain(PART, error)
    # Like `guarded`, whose call the program's profile function would see.
    profile, trace = get_profile(), get_trace()
    hidden = profile is not None and is_function(profile)
    if hidden:
        set_profile(None)
        suspended[get_ident()] = profile
    if trace is not None:
        set_trace(None)
    try:
        session = session or _begun()
        if session is not None:
            session.signal("mark", 0, kind=kind, samples=samples, tokens=tokens)
    except RecursionError:
        pass
    except BaseException as error:
        contain(PART, error)
    finally:
        if trace is not None:
            set_trace(trace)
        if hidden:
            suspended.pop(get_ident(), None)
            set_profile(profile)


def _begun() -> Session | None:
    """Return the recording of a program without torch, started by the first step; None if nothing records."""
    _asked.append(True)
    if "torch" in sys.modules:  # its import already began one, or it has ended
        return None
    raw = variables().get(RAW)
    try:
        if raw:
            getattr(variables(), "start", _start)(raw)
    except BaseException as error:
        if belongs_to_program(error):  # begin at the next step
            _asked.clear()
        raise
    return current.session


def _start(raw: str) -> None:
    from fathom.probe import boot

    boot.begin(raw)


class region:  # noqa: N801 - used like a function
    """Name a stretch of the program in the timeline: `with region("loss"):` or `@region("loss")`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._annotation: Any = None

    def __enter__(self) -> region:
        if current.session is not None:
            self._open()
        return self

    def __exit__(self, *error: object) -> None:
        if self._annotation is not None:
            self._close(*error)

    @guarded("naming regions")
    def _open(self) -> None:
        annotation = current.session.annotation(self._name) if current.session is not None else None
        if annotation is not None:
            annotation.__enter__()
            self._annotation = annotation

    @guarded("naming regions")
    def _close(self, *error: object) -> None:
        annotation, self._annotation = self._annotation, None
        annotation.__exit__(*error)

    def __call__(self, function: F) -> F:
        name = self._name

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with region(name):
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def start(raw: str, plan: dict[str, object]) -> None:
    """Record this process into the folder `raw` from now on. Imports torch if installed."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401

    from fathom.probe import boot

    boot.start(raw, plan)


def stop() -> None:
    """End what `start` began: complete the files, remove the hooks."""
    from fathom.probe import boot

    boot.stop()
