"""Steps of optimizers, and of gradient scalers that skip one."""

from __future__ import annotations

from typing import Any

from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> list[Any]:
    """Install the hook and return its handle."""
    from torch.amp import GradScaler
    from torch.optim.optimizer import register_optimizer_step_post_hook

    fired = 0
    is_compiling, signal = session.torch.compiler.is_compiling, session.signal

    @guarded("counting optimizer steps")
    def stepped(optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        nonlocal fired
        if not is_compiling():
            fired += 1
            signal("optimizer", id(optimizer))

    def step(original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = fired
        result = original(scaler, optimizer, *args, **kwargs)
        if fired == before:  # gradients overflowed, but the iteration ended here
            stepped(optimizer)
        return result

    patches.wrap(GradScaler, "step", around(step))
    return [register_optimizer_step_post_hook(stepped)]
