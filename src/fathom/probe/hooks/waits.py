"""Host time with a known cause: garbage collection, compilation."""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.collecting import Handle, collections
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.imports import when_imported
from fathom.probe.session import Session
from fathom.probe.threads import get_ident


def install(session: Session, _: Patches) -> list[Any]:
    """Install the hooks and return their handles."""
    handles = [collections(session)]
    when_imported("torch._dynamo", lambda _: handles.append(_compilations(session)))
    return handles


def _compilations(session: Session) -> Handle:
    from torch._dynamo.callback import callback_handler

    open_since: dict[int, int] = {}

    @guarded("timing compilation")
    def began(*_: Any) -> None:
        open_since[get_ident()] = time.time_ns()

    @guarded("timing compilation")
    def ended(*args: Any) -> None:
        start = open_since.pop(get_ident(), None)
        if start is not None:
            session.wait("compilation", start, time.time_ns(), _compiled(args[0] if args else None))

    callback_handler.register_start_callback(began)
    callback_handler.register_end_callback(ended)
    return Handle(lambda: _unregister(callback_handler, began, ended))


def _compiled(arguments: Any) -> str:
    """Return compiler and compile id (function number/version), as in `dynamo 0/5`."""
    trigger, number = getattr(arguments, "callback_trigger", None), getattr(arguments, "compile_id", None)
    return f"{getattr(trigger, 'name', '').lower()} {number or ''}".strip()


def _unregister(handler: Any, began: Any, ended: Any) -> None:
    for listed, callback in ((handler.start_callbacks, began), (handler.end_callbacks, ended)):
        if callback in listed:
            listed.remove(callback)
