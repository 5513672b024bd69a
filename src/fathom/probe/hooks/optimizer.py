"""Steps of optimizers, and of gradient scalers that skip one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fathom.probe.faults import contain, guarded, identity, this_thread
from fathom.probe.hooks.patches import Patches, around
from fathom.probe.hooks.succession import Succession
from fathom.probe.session import Session

PART = "counting optimizer steps"


def install(session: Session, patches: Patches) -> list[Any]:
    """Install the hook and return its handle."""
    from torch.amp import GradScaler
    from torch.optim.optimizer import register_optimizer_step_post_hook

    fired, succession = 0, Succession()
    compiler, marks = session.torch.compiler, session.deferred
    is_traced = getattr(compiler, "is_dynamo_compiling", compiler.is_compiling)

    def stepped(optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        nonlocal fired
        try:
            if is_traced():
                return
            fired += 1
            if marks.optimizer == identity(optimizer) and marks.thread == this_thread():
                now = marks.now()
                if now < marks.until and (facts := marks.facts).alike:
                    marks.append(now)
                    facts.alike = facts.steady
                    return
        except RecursionError:  # a call to report it would raise again
            return
        except BaseException as error:
            contain(PART, error)
        handle(optimizer)

    @guarded(PART)
    def handle(optimizer: Any) -> None:
        key = id(optimizer)
        with suppress(TypeError):  # an optimizer may forbid weak references
            key = succession.key_of(optimizer)
            session.optimizers.add(optimizer)
        session.signal("optimizer", key)
        if marks.optimizer == key:  # the next step of this object may be deferred
            marks.optimizer = id(optimizer)

    def step(original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = fired
        result = original(scaler, optimizer, *args, **kwargs)
        if fired == before:  # gradients overflowed, but the iteration ended here
            stepped(optimizer)
        return result

    patches.wrap(GradScaler, "step", around(step))
    return [register_optimizer_step_post_hook(stepped)]
