"""Keep faults of the probe from becoming faults of the program."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

_disabled: set[str] = set()
_receive: Callable[[str, str], None] | None = None


def fault(part: str, error: BaseException) -> None:
    """Report, once per part, that `part` failed and is now off. The program continues."""
    if part in _disabled:
        return
    _disabled.add(part)
    try:
        sys.stderr.write(
            f"fathom: {part} is off after a fault of the probe ({type(error).__name__}: {error})\n"
        )
        if _receive is not None:
            _receive("fault", f"{part} failed: {type(error).__name__}: {error}")
    except Exception:
        pass


def guarded(part: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function: its exceptions go to `fault`, after which it is not called again."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if part in _disabled:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                fault(part, error)
                return None

        return wrapper

    return decorate


def reset() -> None:
    """Forget all faults, because a new recording begins."""
    _disabled.clear()


def set_receiver(note: Callable[[str, str], None] | None) -> None:
    """Set the function that receives (part, text) of each fault; None for none."""
    global _receive
    _receive = note
