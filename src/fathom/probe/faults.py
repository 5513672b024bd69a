"""The fence: nothing that goes wrong in the probe reaches the program, and nothing of the program is caught.

Every call from the program into the probe passes `guarded`, or `contain` where a call must be cheap. While
the probe runs, the program's own profile and trace functions are suspended, so they see none of its calls.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from fathom.pristine import os
from fathom.probe.threads import get_ident

# A partial is called without the event of a C call that a profile function would receive.
get_profile, set_profile = partial(sys.getprofile), partial(sys.setprofile)
get_trace, set_trace = partial(sys.gettrace), partial(sys.settrace)
this_thread, identity = partial(get_ident), partial(id)
is_function = partial(callable)  # profilers in C, such as Kineto's, cannot be restored from Python
suspended: dict[int, Any] = {}  # the program's profile functions, by thread
_disabled: set[str] = set()
_receive: Callable[[str, str], None] | None = None
_PROBE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _stderr() -> tuple[int, int] | None:
    """Return the identity of the file behind descriptor 2; None if it is closed."""
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_began_with = _stderr()


def complain(text: str) -> None:
    """Write a line to stderr, unless the program has opened another file there since."""
    try:
        if _began_with is not None and _stderr() == _began_with:
            os.write(2, f"fathom: {text}\n".encode(errors="replace"))
    except BaseException:
        pass


def fault(part: str, error: BaseException) -> None:
    """Report, once per part, that `part` failed and is now off. The program continues."""
    try:
        if part not in _disabled:
            _disabled.add(part)
            _report(part, error)
    except BaseException:  # the program may have replaced what a report needs
        pass


def _report(part: str, error: BaseException) -> None:
    if isinstance(error, OSError) and error.strerror:
        why = str(error.strerror)
        complain(f"{part} is off: {why}")
    else:
        why = f"{type(error).__name__}: {_text(error)}"
        complain(f"{part} is off after a fault of the probe ({why})")
    if _receive is not None:
        _receive("fault", f"{part} failed: {why}")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "no message"


def contain(part: str, error: BaseException) -> None:
    """Report an exception caught in the probe, or raise it again if it belongs to the program."""
    try:
        is_theirs = belongs_to_program(error)
    except BaseException:
        is_theirs = False
    if is_theirs:
        raise error
    fault(part, error)


def belongs_to_program(error: BaseException) -> bool:
    """Return whether a signal raised `error`: Ctrl-C, or an exception in a signal handler of the program.

    Python runs handlers between any two instructions, so also while the probe runs.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    trace = error.__traceback__
    while trace is not None:
        if _handles_signal(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _handles_signal(frame: FrameType) -> bool:
    """Return whether this is a signal handler's frame, which got its caller's frame as an argument."""
    code = frame.f_code
    if frame.f_back is None or code.co_filename.startswith(_PROBE):
        return False
    count = code.co_argcount + bool(code.co_flags & 0x04)  # CO_VARARGS: one more name, with a tuple
    local = frame.f_locals
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + count]:
        value = local.get(name)
        if value is frame.f_back or (isinstance(value, tuple) and frame.f_back in value):
            return True
    return False


def trim(error: BaseException) -> None:
    """Remove the probe's frames from the start of a traceback. A bare `raise` then adds no frame."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PROBE):
        trace = trace.tb_next
    error.__traceback__ = trace


def guarded(part: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function: its exceptions go to `contain`, after which it is not called again."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if part in _disabled:
                return None
            profile, trace = get_profile(), get_trace()  # the program's
            hidden = profile is not None and is_function(profile)
            if hidden:
                set_profile(None)
                suspended[get_ident()] = profile
            if trace is not None:
                set_trace(None)
            try:
                return function(*args, **kwargs)
            except RecursionError:  # here or in the program; a call to report it would raise again
                return None
            except BaseException as error:
                contain(part, error)
                return None
            finally:
                if trace is not None:
                    set_trace(trace)
                if hidden:
                    suspended.pop(get_ident(), None)
                    set_profile(profile)

        return wrapper

    return decorate


def reset() -> None:
    """Forget all faults, because a new recording begins."""
    global _began_with
    _disabled.clear()
    _began_with = _stderr()


def set_receiver(note: Callable[[str, str], None] | None) -> None:
    """Set the function that receives (part, text) of each fault; None for none."""
    global _receive
    _receive = note
