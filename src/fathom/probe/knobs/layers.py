"""Settings of the modules that the program calls: put in place at a module's first outermost call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from fathom.probe.session import Session

Act = Callable[[Session, Any, Any], None]


def when_called(session: Session, act: Act, value: Any) -> None:
    """Call `act(session, module, value)` before the first call of each outermost module."""
    met: WeakSet[Any] = WeakSet()

    def meet(module: Any) -> None:
        if module not in met and any(True for _ in module.parameters()):  # a loss has none
            met.add(module)
            act(session, module, value)

    session.on_root.append(meet)


def channels_last(session: Session, module: Any, value: Any) -> None:
    """Store the weights of convolutions with channels last; activations follow."""
    module.to(memory_format=session.torch.channels_last)


def compiled(session: Session, module: Any, value: Any) -> None:
    """Compile the module in place: whole, or each layer of its lists for `regional`."""
    options = dict(value)
    if not options.pop("regional", False):
        module.compile(**options)
        return
    lists = [m for m in module.modules() if isinstance(m, session.torch.nn.ModuleList)]
    for layer in (layer for each in lists for layer in each):
        layer.compile(**options)


def autocast(session: Session, module: Any, value: Any) -> None:
    """Run the module's forward pass in the lower precision `value`."""
    torch = session.torch
    device = next(module.parameters()).device.type
    cast = torch.autocast(device, dtype=getattr(torch, value))
    module.forward = cast(module.forward)
