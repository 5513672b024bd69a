"""The hooks of trials, which postpone calls that print and log, and skip garbage collections."""

from __future__ import annotations

import builtins
import functools
import gc
import logging
from collections.abc import Callable
from typing import Any

from fathom.probe.hooks.patches import Patches, around
from fathom.probe.imports import when_imported
from fathom.probe.session import Session
from fathom.probe.trials.garbage import Garbage
from fathom.probe.trials.silence import Silence

PART = "trying things out"
_WRITER = tuple(
    f"add_{what}"
    for what in ("scalar", "scalars", "histogram", "text", "image", "images", "figure", "hparams", "pr_curve")
)
# Module, class ("" for module functions), methods. Programs do not use their return values.
WRITERS = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", _WRITER),
    ("tensorboardX.writer", "SummaryWriter", _WRITER),
    ("wandb.sdk.wandb_run", "Run", ("log",)),
    ("mlflow.tracking.fluent", "", ("log_metric", "log_metrics")),
)
# Pending output is written before these calls, because afterwards nobody in this process would write it.
LAST = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", ("close",)),
    ("tensorboardX.writer", "SummaryWriter", ("close",)),
    ("wandb.sdk.wandb_run", "Run", ("finish",)),
    ("mlflow.tracking.fluent", "", ("start_run", "end_run")),
    ("logging", "Logger", ("addHandler", "removeHandler")),
    ("logging", "FileHandler", ("close",)),
    ("builtins", "", ("input",)),
    ("os", "", ("execv", "execve")),
    ("sys", "", ("excepthook",)),
)


def install(session: Session, patches: Patches) -> None:
    """Wrap the calls for the requested trials. Outside of trial steps, the wrappers only forward."""
    silence, garbage = session.trials.get("logging"), session.trials.get("gc")
    if isinstance(garbage, Garbage):
        patches.wrap(gc, "collect", unseen(_collect, garbage))
        patches.wrap(gc, "enable", unseen(_switch, garbage, True))
        patches.wrap(gc, "disable", unseen(_switch, garbage, False))
        patches.wrap(gc, "isenabled", unseen(_is_enabled, garbage))
    if not isinstance(silence, Silence):
        return
    patches.wrap(builtins, "print", unseen(_print, silence))
    patches.wrap(logging.Logger, "callHandlers", unseen(_handlers, silence))
    for module, owner, names in WRITERS:
        kept = unseen(_kept, silence, bool(owner))
        when_imported(module, functools.partial(_wrap, patches, owner, names, kept))
    for module, owner, names in LAST:
        last = unseen(_last, silence)
        when_imported(module, functools.partial(_wrap, patches, owner, names, last))


def unseen(call: Callable[..., Any], *first: Any) -> Callable[[Any], Any]:
    """Wrap like `around` and hide the wrapper from Dynamo, so that compiled code is the same as before."""
    wrap = around(functools.partial(call, *first))

    def wrapping(original: Any) -> Any:
        wrapper = wrap(original)
        wrapper._torchdynamo_disable = True
        return wrapper

    return wrapping


def _collect(garbage: Garbage, original: Any, /, *args: Any, **kwargs: Any) -> int:
    return 0 if garbage.open else original(*args, **kwargs)


def _switch(garbage: Garbage, on: bool, original: Callable[[], None]) -> None:
    if garbage.open:
        garbage.wants(on)
    else:
        original()


def _is_enabled(garbage: Garbage, original: Callable[[], bool]) -> bool:
    return garbage.wanted() if garbage.open else original()


def _print(silence: Silence, original: Any, /, *args: Any, **kwargs: Any) -> None:
    if not (silence.open and silence.keeps_print(original, args, kwargs)):
        original(*args, **kwargs)


def _handlers(silence: Silence, original: Any, logger: Any, record: Any) -> None:
    if not (silence.open and silence.keeps_record(original, logger, record)):
        original(logger, record)


def _wrap(patches: Patches, owner: str, names: tuple[str, ...], wrapping: Any, module: Any) -> None:
    target = getattr(module, owner) if owner else module
    for name in names:
        patches.wrap(target, name, wrapping)


def _last(silence: Silence, original: Any, /, *args: Any, **kwargs: Any) -> Any:
    silence.release()
    return original(*args, **kwargs)


def _kept(silence: Silence, method: bool, original: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not silence.open:
        return original(*args, **kwargs)
    call, rest = (functools.partial(original, args[0]), args[1:]) if method else (original, args)
    return None if silence.keeps(call, rest, kwargs) else original(*args, **kwargs)
