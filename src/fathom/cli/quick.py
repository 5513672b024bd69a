"""Speed up commands: a roomy first frame, simple arguments, and an end without freeing objects.

Commands that only read also use few threads and one processor, collect garbage rarely and keep freed memory.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

READING = (
    "report",
    "compare",
    "gate",
    "findings",
    "tips",
    "explain",
    "kernel",
    "what-if",
    "import",
    "query",
    "export",
    "pack",
)
EXAMINING = (
    "report",
    "compare",
    "findings",
    "kernel",
    "what-if",
)  # neither start a program nor look at this machine
# The tables of a step are small: starting and waking threads takes more time than they save.
_THREADS = {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_KEPT = {-1: 1 << 26, -3: 1 << 25}  # bytes by M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_ROOM = 1 << 15  # words for the values of one frame; the chunk has twice as many
_GARBAGE = 1_000_000  # objects between collections: imports make many, and each pass visits them all
_CHECKED = ("exists", "resolve_path", "parser", "click_type")  # settings that need typer's conversion


def roomy(function: Callable[..., None]) -> Callable[..., None]:
    """Give the function's frame so much memory that the frames of its callees fit into the same chunk.

    Python keeps frames in chunks of 16 KB. A loop whose calls begin a chunk maps and unmaps it each time,
    which took up to a twentieth of a report, depending on the depth of its loops.
    """
    function.__code__ = function.__code__.replace(co_stacksize=_ROOM)
    return function


def only_read(command: str | None) -> None:
    """Limit libraries' threads (unless the user has), collect garbage rarely, and keep freed memory.

    Do nothing for commands that start a program, because the program would inherit the limits.
    """
    if command not in READING:
        return
    gc.set_threshold(_GARBAGE)
    _keep_freed()
    for name, count in _THREADS.items():
        os.environ.setdefault(name, count)


def _keep_freed() -> None:
    """Let glibc keep the memory that arrays free: others soon need it, and each new page costs a fault."""
    import ctypes  # imported here, because other commands do not need it

    with suppress(AttributeError, OSError):  # another C library
        for setting, size in _KEPT.items():
            ctypes.CDLL(None).mallopt(setting, size)


def stay(command: str) -> None:
    """Keep a command that examines a sounding on the processor on which it started, if the system allows.

    Polars passes each of many short queries to its thread and waits. If that thread sleeps on another
    processor, waking it takes as long as the query.
    """
    if command in EXAMINING:
        import ctypes  # imported here, because other commands do not need it

        with suppress(AttributeError, OSError):  # not on Linux, or not allowed
            os.sched_setaffinity(0, {ctypes.CDLL(None).sched_getcpu()})


def leave(end: SystemExit) -> None:
    """End this process as the interpreter does, but without freeing every object, which takes 0.02 s.

    Raise `end` if it has a message to print, if other threads run, or if the output cannot be written.
    """
    if not isinstance(end.code, int | None) or threading.active_count() > 1:
        raise end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            raise end from None
    os._exit(end.code or 0)


def quicken(command: Any, ctx: Any) -> None:
    """Convert strings and paths of the command's parameters without pydantic, whose import takes 0.1 s.

    Newer releases of typer check every value with pydantic; they still convert all other types.
    """
    for param in command.get_params(ctx):  # including the option for help
        usual = getattr(param, "get_runtime_param", None)
        if usual is not None and not _is_checked(param):
            param.get_runtime_param = lambda usual=usual: _Plain(usual)


def _is_checked(param: Any) -> bool:
    info = getattr(getattr(param, "type_descriptor", None), "parameter_info", None)
    return info is None or any(getattr(info, name, None) for name in _CHECKED)


class _Plain:
    """Converts values that need no check, and leaves the others to typer."""

    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value to its annotated type. Raises typer's BadParameter."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        made = _list(value, param) if many else _converted(value, param.type_descriptor.annotation)
        return self._usual().coerce(value, param=param, ctx=ctx) if made is None else made


def _list(value: Any, param: Any) -> list[Any] | None:
    annotation = param.type_descriptor.annotation
    if get_origin(annotation) is not list or not isinstance(value, list | tuple):
        return None
    made = [_converted(word, get_args(annotation)[0]) for word in value]
    return None if None in made else made


def _converted(value: Any, annotation: Any) -> str | Path | None:
    """Return a string, one of an option's words, or a path that is readable or does not exist; else None."""
    if not isinstance(value, str):
        return None
    if annotation is str or (get_origin(annotation) is Literal and value in get_args(annotation)):
        return value
    readable = annotation is Path and (os.access(value, os.R_OK) or not os.path.lexists(value))
    return Path(value) if readable else None
