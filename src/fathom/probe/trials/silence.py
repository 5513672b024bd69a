"""The trial `logging`: the program's printing and logging is buffered, and written after the trial."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from fathom.pristine import os
from fathom.probe.threads import RLock
from fathom.probe.trials.trial import Trial, of_the_steps

WARNING = 30  # as in the module logging
MOST_BYTES = 256 << 20  # for copies of tensors in one stretch
PLAIN = (str, int, float, bool, complex, bytes, type(None))
NONE = "the program printed or logged nothing in the trial's steps"


class CannotKeepError(Exception):
    """An argument that may change before it is written, or is too large to copy."""


class Scalar:
    """A copy of a one-element tensor with a gradient, which prints and formats like the original."""

    def __init__(self, tensor: Any, made_by: str) -> None:
        self._tensor, self._made_by = tensor, made_by

    def __repr__(self) -> str:
        return f"{repr(self._tensor)[:-1]}, grad_fn=<{self._made_by}>)"

    def __format__(self, spec: str) -> str:
        return format(self._tensor, spec)

    def __float__(self) -> float:
        return float(self._tensor)

    def __int__(self) -> int:
        return int(self._tensor)


class Silence(Trial):
    """Buffers writing calls with copies of their arguments, in order."""

    kind = "logging"

    def __init__(self) -> None:
        super().__init__()
        self._calls: deque[tuple[Callable[..., Any], Any, Any]] = deque()
        self._lock = RLock()
        self._left = self._kept = 0
        self._streams: list[Any] = []

    def begin(self, steps: int) -> None:
        self._left = MOST_BYTES
        self._streams = [stream for stream in (sys.stdout, sys.stderr) if _is_file(stream)]
        self.open = True

    def end(self) -> None:
        self.open = False
        self.release()

    def forget(self) -> None:
        """Discard buffered output after a fork, because the parent writes it."""
        self.open = False
        self._calls.clear()
        self._lock = RLock()

    def futile(self) -> str:
        return "" if self._kept else NONE

    def release(self) -> None:
        """Write the buffered output. If Ctrl-C interrupts it, the next call continues."""
        while self._calls:
            try:
                call, args, kwargs = self._calls.popleft()
            except IndexError:  # another thread, such as the alarm's, also writes
                return
            try:
                call(*args, **kwargs)
            except Exception as error:
                sys.stderr.write(f"fathom: buffered output could not be written: {error}\n")

    # calls of the hooks. Other threads never take the lock, because its holder may wait for a handler's lock

    def keeps(self, call: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Buffer the call if possible and return True; if False, make the call now, after earlier output."""
        return of_the_steps() and self._buffer(call, lambda: (self._frozen(args), self._frozen(kwargs)))

    def keeps_print(self, call: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Do the same for a `print` to stdout or stderr; arguments that cannot be copied are kept as text."""
        stream = kwargs.get("file") or sys.stdout
        if not of_the_steps() or not any(stream is argument for argument in self._streams):
            return False
        texts = tuple(self.or_text(argument, str) for argument in args)
        return self._buffer(call, lambda: (texts, {**kwargs, "file": stream}))

    def keeps_record(self, call: Callable[..., Any], logger: Any, record: Any) -> bool:
        """Do the same for a record of `logging`; warnings and errors are written at once."""

        def arguments() -> tuple[Any, Any]:
            if record.levelno >= WARNING:
                raise CannotKeepError
            self._settle(record)
            return (logger, record), {}

        return of_the_steps() and self._buffer(call, arguments)

    def _buffer(self, call: Callable[..., Any], arguments: Callable[[], tuple[Any, Any]]) -> bool:
        """Buffer a call with the result of `arguments`; if that fails, write everything buffered before."""
        with self._lock:
            if not self.open:
                return False
            try:
                self._calls.append((call, *arguments()))
            except Exception:  # CannotKeepError, or a fault of the program, which handlers report
                self.release()
                return False
            self._kept += 1
            return True

    def _settle(self, record: Any) -> None:
        try:
            record.args = self._frozen(record.args, shown=True)
        except CannotKeepError:
            record.msg, record.args = record.getMessage(), None
        record.msg = record.msg if type(record.msg) is str else str(record.msg)

    def or_text(self, value: Any, text: Callable[[Any], str]) -> Any:
        """Return a copy of `value`, or its present text if it cannot be copied."""
        try:
            return self._frozen(value, shown=True)
        except CannotKeepError:
            return text(value)

    def _frozen(self, value: Any, shown: bool = False) -> Any:
        """Return a copy of `value`; `shown`: it is formatted as text later. Raises CannotKeepError."""
        try:
            return self._copied(value, shown)
        except Exception as error:  # a list that contains itself, a sparse tensor, memory that is exhausted
            raise CannotKeepError from error

    def _copied(self, value: Any, shown: bool) -> Any:
        if type(value) in PLAIN:
            return value
        if type(value) in (list, tuple):
            return type(value)(self._copied(part, shown) for part in value)
        if type(value) is dict:
            return {key: self._copied(part, shown) for key, part in value.items()}
        torch = sys.modules["torch"]
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            return self._cloned(value, shown)
        if type(value).__module__ == "numpy" and hasattr(value, "nbytes") and not value.dtype.hasobject:
            self._spend(value.nbytes)
            return value.copy()
        raise CannotKeepError

    def _cloned(self, tensor: Any, shown: bool) -> Any:
        if shown and tensor.requires_grad and (tensor.dim() or tensor.grad_fn is None):
            raise CannotKeepError  # its text names its origin
        self._spend(tensor.nbytes)
        clone = tensor.detach().clone()
        return Scalar(clone, type(tensor.grad_fn).__name__) if shown and tensor.requires_grad else clone

    def _spend(self, size: int) -> None:
        if size > self._left:
            raise CannotKeepError
        self._left -= size


def _is_file(stream: Any) -> bool:
    """Return whether the stream has a file descriptor, so that the program does not read it back."""
    try:
        return os.fstat(stream.fileno()) is not None
    except Exception:
        return False
