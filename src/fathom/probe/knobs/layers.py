"""Settings of the modules that the program calls: put in place at a module's first outermost call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from fathom.probe.session import Session


def when_called(session: Session, act: Callable[[Any], object]) -> None:
    """Call `act(module)` before the first call of each outermost module."""
    met: WeakSet[Any] = WeakSet()

    def meet(module: Any) -> None:
        if module not in met and any(True for _ in module.parameters()):  # a loss has none
            met.add(module)
            act(module)

    session.on_root.append(meet)


def channels_last(session: Session, _: Any) -> None:
    """Store the weights of convolutions with channels last; activations follow."""
    last = session.torch.channels_last
    when_called(session, lambda module: module.to(memory_format=last))
