"""Host time with a known cause: garbage collection, checkpoints, compilation."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fathom.pristine import time
from fathom.probe.collecting import Handle, collections
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.imports import when_imported
from fathom.probe.session import Session
from fathom.probe.threads import get_ident

CHECKPOINTS = {
    "safetensors.torch": ("save_file", "save_model"),
    "torch.distributed.checkpoint": ("save",),
}


def install(session: Session, patches: Patches) -> list[Any]:
    """Install the hooks and return their handles."""
    patches.wrap(torch, "save", around(functools.partial(_timed, session, "torch.save")))
    for module, names in CHECKPOINTS.items():
        when_imported(module, functools.partial(_time_all, session, patches, names))
    handles = [collections(session)]
    when_imported("torch._dynamo", lambda _: handles.append(_compilations(session)))
    return handles


def _time_all(session: Session, patches: Patches, names: tuple[str, ...], module: Any) -> None:
    for name in names:
        detail = f"{module.__name__}.{name}"
        patches.wrap(module, name, around(functools.partial(_timed, session, detail)))


def _timed(session: Session, detail: str, original: Any, /, *args: Any, **kwargs: Any) -> Any:
    start = time.time_ns()
    try:
        return original(*args, **kwargs)
    finally:
        _saved(session, start, detail)


@guarded("timing waits")
def _saved(session: Session, start: int, detail: str) -> None:
    session.wait("checkpoint", start, time.time_ns(), detail)


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
