"""Settings that can be switched on and off while the program runs: each is in place within its context.

They leave nothing behind: weights, optimizers and data loaders stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from fathom.probe.knobs.heap import freed_memory
from fathom.probe.session import Session

Switch = Callable[[Session, list[Any], Any], AbstractContextManager[None]]  # with modules, and the value
# Compiled calls and cast forward passes by module, kept while they are off: Dynamo compiles each new one.
_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_cast: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@contextmanager
def _matmul_precision(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    own = session.torch.get_float32_matmul_precision()
    session.torch.set_float32_matmul_precision(value)
    yield
    session.torch.set_float32_matmul_precision(own)


@contextmanager
def _attention(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    cuda = session.torch.backends.cuda
    backends = {
        "flash": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        "efficient": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        "cudnn": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        "math": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    }
    own = [(enable, enabled()) for enabled, enable in backends.values()]
    for name, (_, enable) in backends.items():
        enable(name in (value, "math"))  # math takes what the others do not support
    yield
    for enable, was_enabled in own:
        enable(was_enabled)


@contextmanager
def _threads(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    own = session.torch.get_num_threads()
    session.torch.set_num_threads(int(value))
    yield
    session.torch.set_num_threads(own)


@contextmanager
def _autocast(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    """Run the modules' forward passes in the lower precision `value`."""
    torch = session.torch
    own = [(module, module.__dict__.get("forward")) for module in modules]
    for module in modules:
        if module not in _cast:
            device = next(module.parameters()).device.type
            _cast[module] = torch.autocast(device, dtype=getattr(torch, value))(module.forward)
        module.forward = _cast[module]
    yield
    for module, forward in own:
        if forward is None:
            del module.forward
        else:
            module.forward = forward


@contextmanager
def _compile(session: Session, modules: list[Any], value: Any) -> Iterator[None]:
    """Compile the modules in place: whole, or each layer of their lists for `regional`."""
    options = dict(value)
    parts = _layers(session, modules) if options.pop("regional", False) else modules
    own = [(part, part._compiled_call_impl) for part in parts]
    for part in parts:
        if part not in _compiled:
            part.compile(**options)
            _compiled[part] = part._compiled_call_impl
        part._compiled_call_impl = _compiled[part]
    yield
    for part, call in own:
        part._compiled_call_impl = call


def _layers(session: Session, modules: list[Any]) -> list[Any]:
    """Return the repeated layers."""
    inner = (part for module in modules for part in module.modules())
    lists = [part for part in inner if isinstance(part, session.torch.nn.ModuleList)]
    return [layer for each in lists for layer in each]


SWITCHES: dict[str, Switch] = {
    "matmul_precision": _matmul_precision,
    "attention": _attention,
    "autocast": _autocast,
    "compile": _compile,
    "freed_memory": freed_memory,
    "threads": _threads,
}
OF_MODULES = ("autocast", "compile")  # these wait for the modules that the program calls
