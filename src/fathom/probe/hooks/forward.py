"""Outermost calls of modules and compiled functions: the steps of a program without optimizer and loader.

Until the repeated callable is known, calls of every module are watched. Dynamo must not see the wrapper: it
compares `Module.__call__` with the original and inlines the function that it finds. So the wrapper is removed
while Dynamo is imported, wraps a callable or compiles, and for good once the clock is known. If Dynamo gives
up a frame, it tries every frame below, the wrapper's first; so Dynamo is told to skip the wrapper's frames.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

from fathom.probe.collecting import Handle
from fathom.probe.faults import guarded, trim
from fathom.probe.hooks.batch import TOKENS, size
from fathom.probe.hooks.patches import Patches
from fathom.probe.imports import when_imported
from fathom.probe.session import Session
from fathom.probe.threads import Local

PART = "watching forward calls"
CACHES = ("past_key_values", "past_key_value", "cache", "kv_cache", "past")
NO_IDS = (torch.bool, torch.complex64, torch.complex128)


class ForwardCalls:
    """Watches outermost calls and reports each as a signal."""

    def __init__(self, session: Session, patches: Patches) -> None:
        self.session, self.patches = session, patches
        clock = "forward" in session.chooser.allowed
        self.looking = clock or bool(session.on_root or session.on_output)
        self.over = False
        self._everywhere = Patches()
        self._inside = Local()
        self._roots: dict[int, Any] = {}
        self._batch_first: dict[int, bool] = {}

    def look(self) -> None:
        """Watch all modules, unless the clock is known."""
        if self.looking:
            self._everywhere.wrap(torch.nn.Module, "__call__", self.around)

    def lift(self) -> None:
        """Suspend the watch."""
        self._everywhere.undo()

    def around(self, original: Any, compiled: bool = False) -> Any:
        """Send a signal before each outermost call of a module or compiled function, outside of Dynamo."""
        inside, seen, returned = self._inside, self._seen, self.session.on_output

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(inside, "yes", False):
                return original(*args, **kwargs)
            inside.yes = True
            try:
                if compiled:
                    seen(original, args, kwargs)
                else:
                    seen(args[0], args[1:], kwargs)
                result = original(*args, **kwargs)
                for receive in returned:
                    receive(result)
                return result
            except BaseException as error:
                trim(error)
                raise
            finally:
                inside.yes = False

        return wrapper

    @guarded(PART)
    def _seen(self, called: Any, args: Any, kwargs: Any) -> None:
        # While activations are recomputed, a task of autograd runs: with a GPU in an autograd thread,
        # where no burst may begin, because another thread would end it.
        if self.over or _in_worker() or torch._C._current_graph_task_id() != -1:
            return
        root = type(called) if isinstance(called, torch.nn.Module) else called
        if isinstance(root, type):
            for meet in self.session.on_root:
                meet(called)
        clock = self.session.chooser.clock
        if clock is not None and clock != ("forward", id(root)):
            return
        data = args or kwargs
        samples, tokens = size(data, least=2)  # a vector may be anything, not a batch
        if id(root) not in self._batch_first:
            self._batch_first[id(root)] = _batch_first(called)
        if not self._batch_first[id(root)] and _short(args, kwargs):
            samples = None
        grad = torch.is_grad_enabled()
        self._roots[id(root)] = root
        query = _query(args, kwargs)
        kind = _kind(query, kwargs)
        self.session.signal("forward", id(root), grad, kind, samples, tokens, query)

    def end(self) -> None:
        """Watch nothing any more. Compiled functions keep their wrappers, which then report nothing."""
        self.over, self.looking = True, False
        self.lift()

    def chosen(self, source: str) -> None:
        """Watch only the class whose calls are the clock, or nothing if the clock has another source."""
        self.looking = False
        self.lift()
        clock = self.session.chooser.clock
        root = self._roots.get(clock[1]) if clock is not None and source == "forward" else None
        self._roots.clear()
        if isinstance(root, type):
            self.patches.wrap(root, "__call__", self.around)


def _batch_first(called: Any) -> bool:
    """Return whether the first dimension may be the batch; in recurrent models it is often time."""
    parts = called.modules() if isinstance(called, torch.nn.Module) else ()
    return all(getattr(part, "batch_first", True) for part in parts)


def _short(args: Any, kwargs: Any) -> bool:
    """Return whether the input has as few dimensions as a batch of sequences; images have more."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    return isinstance(first, torch.Tensor) and first.dim() <= 3


def _in_worker() -> bool:
    """Return whether this runs in a loader's worker, where modules prepare samples."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def install(session: Session, patches: Patches) -> list[Handle]:
    """Start looking for the outermost callable."""
    calls = ForwardCalls(session, patches)
    session.on_clock.append(calls.chosen)
    if not calls.looking:
        return []
    if "torch._dynamo.eval_frame" in sys.modules:
        _stay_out_of_dynamo(calls, patches)
    else:
        when_imported("torch._dynamo", lambda module: _stay_out_of_dynamo(calls, patches), before=calls.lift)
    calls.look()
    return [Handle(calls.end)]


def _stay_out_of_dynamo(calls: ForwardCalls, patches: Patches) -> None:
    from torch._dynamo import eval_frame
    from torch._dynamo.callback import callback_handler

    def around(original: Any) -> Any:
        @functools.wraps(original)
        def __call__(self: Any, fn: Any) -> Any:  # noqa: N807
            calls.lift()
            try:
                compiled = original(self, fn)
            finally:
                calls.look()
            return calls.around(compiled, True) if _is_compiled_function(self, compiled) else compiled

        return __call__

    skip = getattr(eval_frame, "skip_code", lambda code: None)  # its location differs between versions
    skip(calls.around(_nothing).__code__)
    patches.wrap(eval_frame._TorchDynamoContext, "__call__", around)
    callback_handler.register_start_callback(lambda *_: calls.lift())
    callback_handler.register_end_callback(lambda *_: calls.look())
    calls.look()


def _nothing() -> None:
    """Do nothing. Wrapping this function gives access to the code of the wrappers."""


def _is_compiled_function(context: Any, compiled: Any) -> bool:
    from torch._dynamo.eval_frame import OptimizeContext

    is_function = isinstance(compiled, type(_is_compiled_function))
    return isinstance(context, OptimizeContext) and is_function and not torch.compiler.is_compiling()


def _query(args: Any, kwargs: Any) -> int | None:
    """Return the ids per sample if the call received a matrix of them; None for other data."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    ids = kwargs.get(TOKENS, first)
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return None
    return None if ids.is_floating_point() or ids.dtype in NO_IDS else int(ids.shape[1])


def _kind(query: int | None, kwargs: Any) -> str | None:
    """Return prefill or decode for a language model with a cache, by the length of its input."""
    if query is None:
        return None
    if not any(kwargs.get(name) is not None for name in CACHES) and not kwargs.get("use_cache"):
        return None
    return "decode" if query == 1 else "prefill"
