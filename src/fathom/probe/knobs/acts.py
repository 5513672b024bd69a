"""The acts: settings that need a call in the program's process, by name.

Each is put in place once torch is imported, before the program's own code uses it, and stays for the life of
the process. A later call of the program to the same function wins.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.knobs import layers, loading, rounding, switching
from fathom.probe.knobs.switches import OF_MODULES, SWITCHES
from fathom.probe.knobs.switching import PART, failed
from fathom.probe.plain import is_plain
from fathom.probe.session import Session

_patches = Patches()  # never undone: the settings stay after the recording has ended
_stay = ExitStack()  # never closed, either


def _flush_denormal(session: Session, value: Any) -> None:
    if not session.torch.set_flush_denormal(bool(value)):
        raise ValueError("this processor cannot flush denormal numbers")


def _cudnn_benchmark(session: Session, value: Any) -> None:
    session.torch.backends.cudnn.benchmark = bool(value)


def _garbage(session: Session, value: Any) -> None:
    """Exclude all that exists when steps begin from collections, or collect less often."""
    if value == "freeze":
        session.on_clock.append(_freeze)
    else:
        gc.set_threshold(int(value), 20, 100)


def _freeze(_: str) -> None:
    gc.collect()
    gc.freeze()


def _optimizer(session: Session, value: Any) -> None:
    """Use the fused or foreach form of optimizers that do not choose one themselves."""
    optim = session.torch.optim

    def chosen(original: Any, optimizer: Any, *args: Any, **options: Any) -> Any:
        if not options.get("fused") and not options.get("foreach") and not options.get("differentiable"):
            options[value] = True
        return original(optimizer, *args, **options)

    for kind in (optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad):
        _patches.wrap(kind, "__init__", around(chosen))


def _loader(session: Session, value: Any) -> None:
    loading.install(session, _patches, dict(value))


def _switched_on(name: str) -> Callable[[Session, Any], None]:
    """Return the act that switches a setting on for good."""
    switch = SWITCHES[name]

    def at_once(session: Session, value: Any) -> None:
        _stay.enter_context(switch(session, [], value))

    def when_called(session: Session, value: Any) -> None:
        layers.when_called(session, lambda module: _stay.enter_context(switch(session, [module], value)))

    return when_called if name in OF_MODULES else at_once


ACTS: dict[str, Callable[[Session, Any], None]] = {
    "flush_denormal": _flush_denormal,
    "cudnn_benchmark": _cudnn_benchmark,
    "garbage": _garbage,
    "optimizer": _optimizer,
    "loader": _loader,
    "rounding": rounding.install,
    "channels_last": layers.channels_last,
    **{name: _switched_on(name) for name in SWITCHES},
}


@guarded(PART)
def install(session: Session) -> None:
    """Put the plan's acts in place, and note those that fail."""
    if is_plain(session.torch):
        session.note(PART, "the program does not use torch, which these settings need")
        return
    for name, value in session.plan.acts.items():
        try:
            ACTS[name](session, value)
        except Exception as error:
            failed(session, name, value, error)
    if session.plan.switched:
        switching.install(session, session.plan.switched)
