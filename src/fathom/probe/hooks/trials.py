"""The hooks of trials, which postpone calls that print and log, and skip garbage collections."""

from __future__ import annotations

import builtins
import functools
import gc
import logging
from collections.abc import Callable
from typing import Any

from fathom.probe.hooks.patches import Patches
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
        patches.wrap(gc, "collect", functools.partial(_collect, garbage))
        patches.wrap(gc, "enable", functools.partial(_switch, garbage, True))
        patches.wrap(gc, "disable", functools.partial(_switch, garbage, False))
        patches.wrap(gc, "isenabled", functools.partial(_is_enabled, garbage))
    if not isinstance(silence, Silence):
        return
    patches.wrap(builtins, "print", functools.partial(_print, silence))
    patches.wrap(logging.Logger, "callHandlers", functools.partial(_handlers, silence))
    for module, owner, names in WRITERS:
        around = functools.partial(_kept, silence, method=bool(owner))
        when_imported(module, functools.partial(_wrap, patches, owner, names, around))
    for module, owner, names in LAST:
        when_imported(
            module, functools.partial(_wrap, patches, owner, names, functools.partial(_last, silence))
        )


def _unseen(wrapper: Any) -> Any:
    """Hide the wrapper from Dynamo, so that compiled code is the same as before."""
    wrapper._torchdynamo_disable = True
    return wrapper


def _collect(garbage: Garbage, original: Callable[..., int]) -> Any:
    @functools.wraps(original)
    def collect(*args: Any, **kwargs: Any) -> int:
        return 0 if garbage.open else original(*args, **kwargs)

    return _unseen(collect)


def _switch(garbage: Garbage, on: bool, original: Callable[[], None]) -> Any:
    @functools.wraps(original)
    def switch() -> None:
        if garbage.open:
            garbage.wants(on)
        else:
            original()

    return _unseen(switch)


def _is_enabled(garbage: Garbage, original: Callable[[], bool]) -> Any:
    @functools.wraps(original)
    def isenabled() -> bool:
        return garbage.wanted() if garbage.open else original()

    return _unseen(isenabled)


def _print(silence: Silence, original: Callable[..., None]) -> Any:
    @functools.wraps(original)
    def print(*args: Any, **kwargs: Any) -> None:
        if not (silence.open and silence.keeps_print(original, args, kwargs)):
            original(*args, **kwargs)

    return _unseen(print)


def _handlers(silence: Silence, original: Callable[..., None]) -> Any:
    @functools.wraps(original)
    def callHandlers(self: Any, record: Any) -> None:  # noqa: N802
        if not (silence.open and silence.keeps_record(original, self, record)):
            original(self, record)

    return _unseen(callHandlers)


def _wrap(patches: Patches, owner: str, names: tuple[str, ...], around: Any, module: Any) -> None:
    target = getattr(module, owner) if owner else module
    for name in names:
        patches.wrap(target, name, around)


def _last(silence: Silence, original: Any) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        silence.release()
        return original(*args, **kwargs)

    return _unseen(wrapper)


def _kept(silence: Silence, original: Any, method: bool) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not silence.open:
            return original(*args, **kwargs)
        call, rest = (functools.partial(original, args[0]), args[1:]) if method else (original, args)
        return None if silence.keeps(call, rest, kwargs) else original(*args, **kwargs)

    return _unseen(wrapper)
